"""What stands before the handlers: the authorizer's answer, Chalice's own refusals, the ends of links and tokens."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from chalice.app import AuthRequest

import app
from chalicelib.api.calls import Context
from chalicelib.api.http import authorize, received_ms
from chalicelib.api.resources.tokens import create_sign_in_link
from chalicelib.console import session
from chalicelib.domain.errors import Forbidden, Unauthorized
from chalicelib.domain.times import DAY_MS
from chalicelib.domain.topic import Caller
from chalicelib.services.manage.tokens import LAST_SECONDS
from chalicelib.wiring import Deps
from tests.support.clock import START_MS, ManualClock, SeededRandom
from tests.support.embedded import embedded_adapters

ARN = "arn:aws:execute-api:eu-west-1:123456789012:abcdef/api/GET/v1/topics"


@pytest.fixture
def deps() -> Deps:
    return Deps(embedded_adapters(ManualClock(), SeededRandom()))


def asked(deps: Deps, authorization: str) -> Any:
    request = AuthRequest("TOKEN", authorization, ARN)
    return authorize(request, deps).to_dict(request)


def test_the_gateway_is_told_all_that_a_token_may(deps: Deps) -> None:
    token, text = deps.tokens.create(
        "ci",
        ("produce", "consume"),
        ("a*", "b"),
        2,
        groups=("mail.*", "x"),
        rate_limit=7,
        most_urgent=1,
        tenant="é",
    )
    for authorization in (f"Bearer {text}", f" bearer  {text} "):
        answer = asked(deps, authorization)
        assert answer["principalId"] == token.id
        told = json.loads(answer["context"]["caller"])
        assert told | {"scopes": sorted(told["scopes"])} == {
            "token_id": token.id,
            "scopes": ["consume", "produce"],
            "topics": ["a*", "b"],
            "groups": ["mail.*", "x"],
            "jobs": ["*"],
            "name": "ci",
            "rate_limit": 7,
            "most_urgent": 1,
            "tenant": "é",
            "expires_ms": START_MS + 2 * DAY_MS,
        }
    _, text = deps.tokens.create("all", ("admin",))
    caller = json.loads(asked(deps, f"Bearer {text}")["context"]["caller"])
    assert (caller["rate_limit"], caller["expires_ms"], caller["topics"]) == (None, None, ["*"])


def test_a_request_was_received_when_the_gateway_says_so(deps: Deps) -> None:
    for context, moment in (({"requestTimeEpoch": START_MS - 9_000}, START_MS - 9_000), ({}, START_MS)):
        request: Any = SimpleNamespace(context=context)
        assert received_ms(request, deps.adapters.clock) == moment


@pytest.mark.parametrize(
    ("status", "status_shown", "code"), [(405, 405, "METHOD_NOT_ALLOWED"), (500, 503, "UNAVAILABLE")]
)
def test_a_refusal_of_chalices_own_is_a_problem(status: int, status_shown: int, code: str) -> None:
    answer: dict[str, Any] = {
        "statusCode": status,
        "headers": {"Allow": "GET"},
        "body": "x",
        "isBase64Encoded": True,
    }
    answer = app.app._as_problem(answer, "r-1")
    problem = json.loads(base64.b64decode(answer["body"]))
    assert (answer["statusCode"], problem["status"], problem["code"]) == (status_shown, status_shown, code)
    assert problem["retryable"] == (status_shown == 503)
    assert (answer["headers"]["Allow"], answer["headers"]["X-Request-Id"]) == ("GET", "r-1")


def test_a_link_signs_in_to_its_last_moment_and_once(deps: Deps) -> None:
    clock: Any = deps.adapters.clock
    links = [deps.sign_in_links.ticket("t1", "f00d")[0] for _ in range(2)]
    clock.advance(LAST_SECONDS * 1000 - 1)
    assert deps.sign_in_links.redeem(links[0]) == ("t1", "f00d")
    clock.advance(1)
    for link in (links[0], links[1], "ä", ""):
        with pytest.raises(Unauthorized):
            deps.sign_in_links.redeem(link)


def signed_in(deps: Deps, text: str) -> session.Session:
    cookie = session.begin(deps, text, secure=False).partition(";")[0]
    return session.of(deps, {"cookie": cookie}, secure=False)


def test_a_session_lasts_for_its_hours_to_the_second(deps: Deps) -> None:
    clock: Any = deps.adapters.clock
    token, text = deps.tokens.create("ci", ("admin",))
    headers = {"cookie": session.begin(deps, text, secure=False).partition(";")[0]}
    clock.advance(session.LASTS_SECONDS * 1000 - 1)
    assert session.of(deps, headers, secure=False).token.id == token.id
    with pytest.raises(Unauthorized):
        session.of(deps, headers, secure=True)
    clock.advance(1)
    with pytest.raises(Unauthorized):
        session.of(deps, headers, secure=False)


def test_a_form_belongs_to_one_session(deps: Deps) -> None:
    _, text = deps.tokens.create("ci", ("admin",))
    one, other = (signed_in(deps, text) for _ in range(2))
    session.check_csrf(one, one.csrf)
    for foreign in (other.csrf, "", "ä"):
        with pytest.raises(Forbidden):
            session.check_csrf(one, foreign)


@pytest.mark.parametrize(
    ("headers", "is_ours"),
    [
        ({}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"sec-fetch-site": "same-origin", "origin": "http://h:8000", "host": "h:8000"}, True),
        ({"origin": "http://h:8001", "host": "h:8000"}, False),
        ({"origin": "http://evil", "host": "h"}, False),
        ({"origin": "null", "host": "h"}, False),
        ({"origin": "http://[", "host": "h"}, False),
        ({"origin": "http://["}, False),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "cross-site", "origin": "http://h", "host": "h"}, False),
    ],
)
def test_a_form_comes_from_our_own_pages(headers: dict[str, str], is_ours: bool) -> None:
    if is_ours:
        session.check_origin(headers)
        return
    with pytest.raises(Forbidden):
        session.check_origin(headers)


def test_a_sign_in_that_is_refused_is_counted(deps: Deps) -> None:
    token, text = deps.tokens.create("ci", ("produce",))
    deps.tokens.revoke(token.id)
    with pytest.raises(Unauthorized):
        session.begin(deps, text, secure=True)
    (entry,) = deps.adapters.audit.entries(0, START_MS + DAY_MS, None)
    assert (entry.path, entry.result, token.id in entry.object) == ("/console/sign-in", "UNAUTHORIZED", True)


@pytest.mark.parametrize(("stage", "scheme"), [("", "http"), ("headrace-dev", "https")])
def test_a_link_leads_to_the_stage_that_made_it(deps: Deps, stage: str, scheme: str) -> None:
    token, text = deps.tokens.create("ci", ("produce",))
    here = Deps(replace(deps.adapters, stage=stage))
    caller = Caller.with_token(token)
    headers = {"Host": "h.example", "Authorization": f"Bearer {text}"}
    context = Context(here, caller, "r-1", headers, {}, {}, b"", prefix="/api")
    link = create_sign_in_link(context).body
    assert link["url"].startswith(f"{scheme}://h.example/api/console/sign-in?ticket=")
    assert here.sign_in_links.redeem(link["url"].partition("=")[2])[0] == token.id
