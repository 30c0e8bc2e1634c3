"""A visitor who was led to the console by a stranger, or whose browser was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.browser import Browser
from tests.support.day import World, a_world
from tests.support.roles import Guard

ELSEWHERE = ("cross-site", "same-site")


@pytest.fixture(scope="module")
def world(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with a_world(Guard(), tmp_path_factory.mktemp("stage")) as world:
        yield world


def link_of(world: World) -> str:
    url = urlsplit(world.api.post("/v1/sign-in-links", {}).expect(201)["url"])
    return f"{url.path}?{url.query}"


def cookie_of(headers: Any) -> str | None:
    return {name.lower(): value for name, value in headers.items()}.get("set-cookie")


@pytest.mark.parametrize("site", ELSEWHERE)
def test_a_strangers_link_signs_nobody_in_until_it_is_confirmed(world: World, site: str) -> None:
    gateway, link = world.api.gateway, link_of(world)
    status, headers, body = gateway.handle("GET", link, {"Sec-Fetch-Site": site}, None)
    assert (status, cookie_of(headers)) == (200, None)
    assert b"Is this link your own?" in body
    form = {"Content-Type": "application/x-www-form-urlencoded", "Host": "q.example"}
    ticket = link.partition("?")[2].encode()
    for foreign in ({"Sec-Fetch-Site": site}, {"Origin": "https://evil.example"}):
        status, headers, _ = gateway.handle("POST", "/console/sign-in", {**form, **foreign}, ticket)
        assert (status, cookie_of(headers)) == (403, None)
    own = {"Sec-Fetch-Site": "same-origin", "Origin": "https://q.example"}
    status, headers, _ = gateway.handle("POST", "/console/sign-in", {**form, **own}, ticket)
    assert status == 303
    status, headers, _ = gateway.handle("POST", "/console/sign-in", {**form, **own}, ticket)
    assert (status, cookie_of(headers)) == (401, None), "once"


def test_a_link_from_a_terminal_signs_in_at_once(world: World) -> None:
    for request_headers in ({}, {"Sec-Fetch-Site": "none"}):
        status, headers, _ = world.api.gateway.handle("GET", link_of(world), request_headers, None)
        assert status == 303
        cookie = cookie_of(headers) or ""
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))


@pytest.mark.parametrize(
    "back",
    [
        "https://evil.example",
        "//evil.example",
        "/\\evil",
        "javascript:alert(1)",
        "/console\r\nX: y",
        "///evil",
    ],
)
def test_whoever_signs_in_stays_here(world: World, back: str) -> None:
    browser = Browser(world.api.gateway)
    reply = browser.post("/console/sign-in", {"token": str(world.api.token), "back": back})
    assert urlsplit(reply.url).netloc == ""
    assert reply.url.startswith("/console")
