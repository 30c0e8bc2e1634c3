"""Health, ladders, statistics, and the request ids of all answers."""

from __future__ import annotations

import itertools
import uuid
from pathlib import Path
from typing import Any

import pytest

import app
from chalicelib import settings, wiring
from chalicelib.adapters import SystemRandom, dynamo_adapters
from chalicelib.domain.errors import Unavailable
from chalicelib.services.core.readiness import Readiness
from chalicelib.store.layout import Tables, definitions
from local.gateway import Gateway
from tests.support.clock import ManualClock
from tests.support.embedded import embedded_adapters
from tests.support.http import Client, ShiftingClock


def test_health_says_that_the_store_answers(api: Client) -> None:
    reply = api.get("/v1/health")
    assert reply.expect(200) == {"status": "ok", "store": "ok"}


def test_a_monitor_may_ask_for_the_health_by_head(api: Client) -> None:
    assert api.call("HEAD", "/v1/health").status == 200


PAGE = "https://app.example.com"


@pytest.mark.parametrize(
    ("origin", "method", "path", "is_allowed"),
    [
        (PAGE, "GET", "/v1/health", True),
        (PAGE, "GET", "/v1/nothing", None),
        (PAGE, "OPTIONS", "/v1/topics/t/messages", True),
        (PAGE, "POST", "/v1/topics/t/messages", None),  # without a token: refused before the API
        ("https://app.example.com.evil.example", "GET", "/v1/health", False),
        ("https://APP.example.com", "OPTIONS", "/v1/health", False),
        ("null", "GET", "/v1/health", False),
        ("*", "OPTIONS", "/v1/health", False),
        (PAGE, "OPTIONS", "/v1/tokens", None),
        (PAGE, "OPTIONS", "/v1/tokens/{id}", None),
        (PAGE, "OPTIONS", "/v1/sign-in-links", None),
        (PAGE, "GET", "/console/sign-in", None),
    ],
)
def test_only_pages_of_the_stages_origins_read_answers(
    monkeypatch: pytest.MonkeyPatch, origin: str, method: str, path: str, is_allowed: bool | None
) -> None:
    """None: no header says anything of pages."""
    stage = settings.read({"HEADRACE_CORS_ORIGINS": f"{PAGE},*,null"})
    deps = wiring.Deps(embedded_adapters(ShiftingClock(), SystemRandom(), settings=stage))
    monkeypatch.setattr(wiring, "deps", lambda: deps)
    status, headers, _ = Gateway(app.app).handle(method, path, {"Origin": origin}, None)
    assert headers.get("Access-Control-Allow-Origin") == (origin if is_allowed else None)
    assert (headers.get("Vary") == "Origin") == (is_allowed is not None)
    assert "Access-Control-Allow-Credentials" not in headers
    if method == "OPTIONS":
        assert status == (405 if is_allowed is None else 204)
        allowed = headers.get("Access-Control-Allow-Methods", "")
        assert bool(allowed) == bool(is_allowed)
        assert "Authorization" in headers.get("Access-Control-Allow-Headers", "") or not is_allowed


def test_health_names_a_table_that_is_missing(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients: list[Any] = []
    clock = ShiftingClock()
    stage_settings = settings.read(
        {"HEADRACE_PREFIX": f"health{uuid.uuid4().hex[:8]}", "HEADRACE_DATA": str(tmp_path)}
    )
    deps = wiring.Deps(dynamo_adapters(stage_settings, clock, on_client=clients.append))
    deps.setup()
    monkeypatch.setattr(wiring, "deps", lambda: deps)
    nobody, [dynamodb] = Client(Gateway(app.app), None), clients
    nobody.get("/v1/health").expect(200)
    for definition in reversed(definitions(Tables(stage_settings.prefix))):
        dynamodb.delete_table(TableName=definition["TableName"])
        clock.advance(6)
        problem = nobody.get("/v1/health").refused(503, "UNAVAILABLE")
        assert repr(definition["TableName"].removeprefix(f"{stage_settings.prefix}-")) in problem["detail"]


def test_health_costs_no_more_the_oftener_it_is_asked() -> None:
    clock, reads = ManualClock(), itertools.count()
    readiness = Readiness(lambda: str(next(reads)), clock)
    for _ in range(100):
        with pytest.raises(Unavailable, match="'0'"):
            readiness.check()
    clock.advance(6_000)
    with pytest.raises(Unavailable, match="'1'"):
        readiness.check()


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("fixed-30", [30, 30, 30]),
        ("jmq", [1, 3, 9, 27, 81, 243, 729, 2187, 6561, 19683]),
        ("notify", [15, 180, 600, 1800, 1800, 3600, 7200, 21600, 54000]),
        ("rocketmq", [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]),
    ],
)
def test_a_ladder_is_previewed_with_its_sum(api: Client, name: str, steps: list[int]) -> None:
    view = api.get(f"/v1/ladders/{name}").expect(200)
    attempts = 4 if name == "fixed-30" else 16
    waits = [*steps, *[steps[-1]] * attempts][: attempts - 1]
    assert view == {
        "ladder": name,
        "steps_seconds": steps,
        "sum_seconds": sum(steps),
        "max_attempts": attempts,
        "waits_seconds": waits,
        "waits_sum_seconds": sum(waits),
    }


def test_an_exponential_ladder_takes_its_formula_from_the_query(api: Client) -> None:
    view = api.get("/v1/ladders/exponential?base_seconds=2&factor=3&cap_seconds=100").expect(200)
    assert view["steps_seconds"] == [2, 6, 18, 54, 100]
    assert view["sum_seconds"] == 180


def test_stats_show_every_topic_and_group_that_the_token_may_use(api: Client) -> None:
    topic = api.topic()
    topic.group("a")
    topic.produce("x")
    fields = {"name": "t", "scopes": ["produce"], "topics": [topic.name]}
    holder = api.with_token(api.post("/v1/tokens", fields).expect(201)["token"])
    [item] = [item for page in holder.pages("/v1/stats", 50) for item in page]
    assert (item["topic"], item["accepted"]) == (topic.name, 1)
    assert item["groups"]["a"].items() >= {"backlog": 1, "in_flight": 0, "retrying": 0, "dead": 0}.items()


def test_every_answer_has_a_request_id_of_its_own(api: Client) -> None:
    replies = [
        api.get("/v1/topics?limit=1"),
        api.get("/v1/topics/nobody"),
        api.get("/nowhere"),
        api.delete("/v1/topics"),
    ]
    ids = [{name.lower(): value for name, value in r.headers.items()}["x-request-id"] for r in replies]
    assert len(set(ids)) == 4
    assert replies[1].json["request_id"] == ids[1]
    assert replies[2].json["request_id"] == ids[2]


@pytest.mark.parametrize(
    "path", ["/v1", "/v1/", "/v2/topics", "/v1/topics/a/b", "/v1/nothing", "//", "/v1/topics//"]
)
def test_a_path_that_is_none_is_a_404(api: Client, path: str) -> None:
    api.get(path).refused(404)


@pytest.mark.parametrize(
    ("accept", "path"),
    [
        ("text/html,application/xhtml+xml;q=0.9", "/console"),
        ("application/json", "/v1/openapi.json"),
        (None, "/v1/openapi.json"),
    ],
)
def test_the_bare_address_leads_a_browser_to_the_console_and_a_program_to_the_document(
    api: Client, accept: str | None, path: str
) -> None:
    answer = api.call("GET", "/", headers={"Accept": accept} if accept else {})
    assert answer.status == 303
    assert {name.lower(): value for name, value in answer.headers.items()}["location"] == path


@pytest.mark.parametrize("path", ["/v1/health", "/v1/ladders/jmq", "/v1/ladders/none", "/v1/nowhere"])
def test_every_answer_ends_with_a_newline(api: Client, path: str) -> None:
    assert api.get(path).raw.endswith(b"\n")


@pytest.mark.parametrize("method", ["PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "get", "FOO"])
def test_a_method_the_path_does_not_have_is_a_405(api: Client, method: str) -> None:
    problem = api.call(method, "/v1/topics").refused(405, "METHOD_NOT_ALLOWED")
    assert method == "HEAD" or "it has GET" in problem["detail"]
