"""The function URLs: who calls, `Authorization` alone says; each serves its own calls and no other."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import app
from chalicelib import wiring
from tests.support.day import Time, World, a_world, by_url
from tests.support.roles import Guard

ADMIN = {"scopes": "admin consume produce", "topics": "*", "groups": "*", "principalId": "t1"}
ROLE = "arn:aws:sts::123456789012:assumed-role/orders/session-7"
NAMES = {"topic": "t", "group": "g", "consumer": "c", "name": "jmq", "id": "some-id"}
RECEIVE = "/v1/topics/{topic}/groups/{group}/receive"
NOT_SERVED = ("/v1/audit", "/v1/sign-in-links", "/v1/signing-key", "/v1/tokens")


@pytest.fixture(scope="module")
def world(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with a_world(Guard(), tmp_path_factory.mktemp("stage")) as world:
        yield world


def asked(function: Any, event: dict[str, Any]) -> tuple[int, Any]:
    answer = function(event, Time(30))
    assert answer["headers"]["Strict-Transport-Security"]
    return answer["statusCode"], json.loads(base64.b64decode(answer["body"]))


@pytest.mark.parametrize(
    "claims",
    [{"authorizer": ADMIN}, {"identity": {"userArn": ROLE}}, {"authorizer": {"iam": {"userArn": ROLE}}}],
)
def test_what_an_event_says_of_its_caller_is_nothing_without_a_token(
    world: World, claims: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    deps = wiring.Deps(replace(world.adapters, iam=True))
    monkeypatch.setattr(wiring, "deps", lambda: deps)
    headers = {"content-type": "application/json", "x-user-arn": ROLE, "authorization": "AWS4-HMAC-SHA256 x"}
    for method, path in (("PUT", "/v1/topics/mine"), ("GET", "/v1/topics")):
        status, problem = asked(app.api_url, by_url(method, path, headers, b"{}", **claims))
        assert (status, problem["code"]) == (401, "UNAUTHORIZED")
    event = by_url("POST", RECEIVE.format(**NAMES), headers, b"{}", **claims)
    assert asked(app.receive_url, event)[0] == 401
    _, text = world.deps.tokens.create("weak", ("produce",), ("mine",))
    event = by_url("PUT", "/v1/topics/mine", {**headers, "authorization": f"Bearer {text}"}, b"{}", **claims)
    assert asked(app.api_url, event)[1]["code"] == "SCOPE_MISSING"


def test_each_url_serves_its_own_calls_and_no_other(world: World) -> None:
    """Without a token; what is served asks for one."""
    served: dict[str, set[str]] = {"api_url": set(), "receive_url": set()}
    calls = {
        (method, path): entry for path, entries in app.app.routes.items() for method, entry in entries.items()
    }
    for function, calls_served in served.items():
        for method, path in calls:
            filled = re.sub(r"{\w+}", "x", path)
            status, problem = asked(getattr(app, function), by_url(method, filled, {}))
            assert status in (401, 404) or path == "/v1/health"
            calls_served |= {f"{method} {path}"} if problem.get("code") != "ROUTE_NOT_FOUND" else set()
    guarded = {
        f"{m} {p}" for (m, p), entry in calls.items() if entry.authorizer and not p.startswith(NOT_SERVED)
    }
    assert served == {
        "api_url": guarded | {"GET /v1/health", "HEAD /v1/health"},
        "receive_url": {f"POST {RECEIVE}"},
    }
    for method, path in (
        ("HEAD", "/v1/topics"),
        ("DELETE", "/v1/topics"),
        ("GET", ""),
        ("GET", "//v1/topics"),
        ("GET", "/v1/topics/a/b/c"),
    ):
        assert asked(app.api_url, by_url(method, path, {}))[0] == 404


def test_a_receive_waits_at_its_own_url_only(world: World) -> None:
    group = world.api.topic().group()
    headers = {"authorization": f"Bearer {world.api.token}", "content-type": "application/json"}
    waits: list[Any] = []
    for function in (app.api_url, app.receive_url):
        world.clock.on_wait = lambda function=function: waits.append(function)
        event = by_url("POST", f"{group.path}/receive", headers, b'{"wait_seconds": 2}')
        assert asked(function, event) == (200, {"messages": [], "because": "empty"})
    assert waits == [app.receive_url]


def test_a_part_of_a_path_stays_one_whatever_is_encoded_in_it(world: World) -> None:
    headers = {"authorization": f"Bearer {world.api.token}"}
    for path in ("/v1/topics/a%2Fgroups", "/v1/topics/..%2Ftokens", "/v1/topics/%"):
        assert asked(app.api_url, by_url("GET", path, headers))[1]["code"] == "INVALID_NAME"
    assert asked(app.api_url, by_url("GET", "/v1/topics?limit=1&limit=2", headers))[1]["code"] == "VALIDATION"
