"""Texts at and over the limits of DynamoDB's keys (1,024 and 2,048 bytes), wherever a call or a page takes one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote, urlencode

import pytest

from chalicelib.api.calls import CALLS, Call
from chalicelib.console.pages import PAGES
from tests.support.browser import Browser
from tests.support.http import Client, Topic

TEXTS = ["😀" * 256, "x" * 2049]
"""The longest that may be a key, and what is longer than any part of one."""
NAMES = ("topic", "group", "consumer")
IN_PAGES = (
    "after",
    "as",
    "before",
    "group",
    "ids",
    "key",
    "like",
    "name",
    "page",
    "reason",
    "tag",
    "text",
    "token",
)
LISTS: list[tuple[str, str, dict[str, object]]] = [
    ("PATCH", "{topic}/messages", {"cancel": True, "dry_run": True}),
    ("PATCH", "{topic}/groups/g/dead-letters", {"patch": {}, "dry_run": True}),
    ("POST", "{topic}/groups/g/dead-letters/redrive", {}),
]
_PARAMETER = re.compile(r"{(\w+)}")


@pytest.fixture(scope="module")
def topic(api: Client) -> Topic:
    topic = api.topic()
    topic.group().register("c")
    topic.produce(1, keys=["k"])
    return topic


def filled(topic: Topic, path: str, text: str) -> str:
    """The path with the topic's names in it, and the text in the place of any id."""
    names = dict(zip(NAMES, (topic.name, "g", "c"), strict=True))
    return _PARAMETER.sub(lambda match: names.get(match[1], quote(text)), path)


def calls(topic: Topic, text: str) -> Iterator[tuple[Call, str]]:
    """Every call with the text as its id, and as each of its query parameters."""
    for entry in CALLS:
        if {*_PARAMETER.findall(entry.path)} - {*NAMES}:
            yield entry, filled(topic, entry.path, text)
        for name in entry.query:
            yield entry, f"{filled(topic, entry.path, 'x')}?{name}={quote(text)}"


@pytest.mark.parametrize("text", TEXTS)
def test_no_call_fails_by_a_long_text(topic: Topic, text: str) -> None:
    for entry, path in calls(topic, text):
        reply = topic.api.call(entry.method, path, {} if entry.body else None)
        assert reply.status < 500, (entry.method, path, reply.raw)
    for method, path, body in LISTS:
        reply = topic.api.call(method, path.format(topic=topic.path), body | {"ids": [text]})
        assert b"UNAVAILABLE" not in reply.raw, (method, path, reply.raw)


@pytest.mark.parametrize("text", TEXTS)
def test_no_page_fails_by_a_long_text(topic: Topic, browser: Browser, text: str) -> None:
    query = urlencode(dict.fromkeys(IN_PAGES, text) | {"q": "x"})
    for entry in PAGES:
        if entry.method == "GET":
            screen = browser.get(f"{filled(topic, entry.path, text)}?{query}")
            assert screen.status < 500, (entry.path, screen.text)


@pytest.mark.parametrize("field", ["topic", "group"])
def test_no_form_fails_by_a_long_name(topic: Topic, browser: Browser, field: str) -> None:
    form = browser.get(f"/console/topics/{topic.name}").form("put_group")
    screen = browser.submit(form, **{"group": "g", field: "x" * 2049})
    assert (screen.status, "INVALID_NAME" in screen.text) == (400, True)
