"""Who makes too many calls, or calls that it may not make, gets little for it: no work, and few writes."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme

import app
from chalicelib.domain.call_result import Attempt, PushBatch
from chalicelib.domain.signing import Secret
from chalicelib.services.push.sources import callback
from infra.package import describe
from infra.stages import read
from tests.functional.delivery.receivers import http_receiver, public_egress_to
from tests.functional.delivery.test_delivery_handshake import sender
from tests.support import factories as make
from tests.support.browser import Browser
from tests.support.day import World, a_world
from tests.support.http import Client, Reply
from tests.support.roles import Guard

LIMIT = 10
TOPIC = make.topic()


@pytest.fixture(scope="module")
def stage(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with a_world(Guard(), tmp_path_factory.mktemp("stage")) as world:
        yield world


@pytest.fixture
def world(stage: World) -> Iterator[World]:
    """Its time stands still, so that a slow machine makes as many calls in a second as a quick one."""
    with stage.clock.stopped():
        yield stage


def holder(world: World, **fields: Any) -> Client:
    scopes = ["produce", "consume", "admin"]
    token = world.api.post("/v1/tokens", {"name": "holder", "scopes": scopes, **fields}).expect(201)
    return world.api.with_token(token["token"])


def count(world: World, table: str) -> int:
    client = world.adapters.log._dynamo.client
    return int(client.scan(TableName=table, Select="COUNT", ConsistentRead=True)["Count"])


def until_refused(client: Client) -> int:
    for count in range(100):
        reply = client.get("/v1/ladders/jmq")
        if reply.status == 429:
            is_told_to_wait(reply)
            return count
    raise AssertionError("never refused")


def is_told_to_wait(reply: Reply) -> None:
    assert reply.refused(429, "RATE_LIMITED")["retryable"]
    assert {name.lower(): value for name, value in reply.headers.items()}["retry-after"] == "1"


def test_a_token_makes_no_more_calls_than_its_limit_says_and_hinders_nobody(world: World) -> None:
    client, other = holder(world, rate_limit=LIMIT), holder(world, rate_limit=LIMIT)
    assert 1 <= until_refused(client) <= 2 * LIMIT
    other.get("/v1/ladders/jmq").expect(200)
    world.api.get("/v1/ladders/jmq").expect(200)
    world.clock.advance(1)
    client.get("/v1/ladders/jmq").expect(200)


def test_who_has_a_limit_makes_no_token_and_none_of_those_that_have_another_limit_its_own(
    world: World,
) -> None:
    client = holder(world, rate_limit=1000)
    for more in ({}, {"rate_limit": 1001}, {"rate_limit": 1}):
        client.post("/v1/tokens", {"name": "x", "scopes": ["produce"], **more}).refused(403, "TOO_MUCH")
    other = world.api.post("/v1/tokens", {"name": "x", "scopes": ["produce"], "rate_limit": 5}).expect(201)
    client.post(f"/v1/tokens/{other['id']}/rotate").refused(403, "TOO_MUCH")
    own = str(client.token).split("_")[1]
    assert client.post(f"/v1/tokens/{own}/rotate").expect(200)["rate_limit"] == 1000


def test_the_console_is_no_way_around_a_limit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    process = world.deps
    monkeypatch.setattr("chalicelib.wiring.deps", lambda: process)
    browser = Browser(world.api.gateway)
    browser.sign_in(str(holder(world, rate_limit=LIMIT).token))
    statuses = [browser.get("/console/system").status for _ in range(3 * LIMIT)]
    assert statuses[0] == 200
    assert statuses.count(200) <= 2 * LIMIT
    assert set(statuses) == {200, 429}


def test_what_was_refused_at_the_door_is_audited_once_an_hour(world: World, monkeypatch: Any) -> None:
    process = world.deps  # one process: its memory is what bounds the entries
    monkeypatch.setattr("chalicelib.wiring.deps", lambda: process)
    token = world.api.post("/v1/tokens", {"name": "prober", "scopes": ["produce"], "topics": ["a*"]}).expect(
        201
    )
    prober = world.api.with_token(token["token"])
    before = count(world, world.tables.audit)
    tries = 0
    for n in range(30):
        prober.get("/v1/tokens").refused(403, "SCOPE_MISSING")
        prober.post(f"/v1/topics/b{n}/messages", {"body": 1}).refused(403, "TOPIC_FORBIDDEN")
        tries += 2
    assert count(world, world.tables.audit) == before + 2
    entries = world.api.get(f"/v1/audit?token={token['id']}").expect(200)["items"]
    assert {entry["result"] for entry in entries} == {"SCOPE_MISSING", "TOPIC_FORBIDDEN"}
    assert {entry["object"] for entry in entries} >= {"topic b0"}
    world.clock.advance(3601)
    prober.get("/v1/tokens").refused(403, "SCOPE_MISSING")
    assert count(world, world.tables.audit) == before + 3
    print(f"{tries} calls refused at the door left 2 entries")


def test_calls_whose_token_is_none_are_counted_and_few_of_them_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = world.deps
    monkeypatch.setattr("chalicelib.wiring.deps", lambda: process)
    client = holder(world)
    id = str(client.token).split("_")[1]
    world.api.delete(f"/v1/tokens/{id}").expect(204)
    before = count(world, world.tables.audit)
    for _ in range(120):
        world.clock.advance(0.01)
        client.get("/v1/ladders/jmq").refused(401, "UNAUTHORIZED")
    entries = world.api.get(f"/v1/audit?token={id}").expect(200)["items"]
    objects = [entry["object"] for entry in entries if entry["result"] == "UNAUTHORIZED"]
    assert objects == [f"token {id}, refusal {n} of this hour" for n in (100, 10, 1)]
    assert {(each["method"], each["path"]) for each in entries[:3]} == {("GET", "/v1/ladders/jmq")}
    assert count(world, world.tables.audit) == before + 3
    world.clock.advance(3600)
    for rubbish in ("Bearer", "hr_<script>_x", "hr_a_" + "b" * 59):
        world.api.with_token(rubbish).get("/v1/ladders/jmq").refused(401, "UNAUTHORIZED")
    Browser(world.api.gateway).sign_in("hr_no_token")
    assert count(world, world.tables.audit) == before + 4
    print("120 calls with a revoked token left 3 entries")


@pytest.mark.parametrize("name", ["x" * 3000, "%00", "<b>", "a b"])
def test_a_refused_name_that_is_none_leaves_a_small_entry(world: World, name: str) -> None:
    token = world.api.post("/v1/tokens", {"name": "prober", "scopes": ["consume"]}).expect(201)
    world.api.with_token(token["token"]).call("PUT", f"/v1/topics/{name.replace(' ', '%20')}", {})
    [entry] = world.api.get(f"/v1/audit?token={token['id']}").expect(200)["items"]
    assert entry["result"] == "SCOPE_MISSING"
    assert len(entry["object"]) <= 300


def test_each_call_without_a_token_has_a_bound_of_its_own(tmp_path: Path) -> None:
    stack = read("dev", {"anonymous_per_second": 7})
    resources = json.loads(describe(stack, tmp_path / "build").read_text())["Resources"]
    settings = resources["RestAPI"]["Properties"]["MethodSettings"]
    bounded_calls = {
        (each["HttpMethod"], each["ResourcePath"]) for each in settings if each["ThrottlingRateLimit"] == 7
    }
    anonymous = {
        (method, "/" if path == "/" else f"/{path.replace('/', '~1')}")
        for path, methods in app.app.routes.items()
        for method, entry in methods.items()
        if not entry.authorizer
    }
    assert bounded_calls == anonymous
    assert {("GET", "/~1v1~1health"), ("POST", "/~1console~1sign-in")} <= bounded_calls


def test_a_flood_of_callbacks_asks_a_host_once_and_its_paths_decide_nothing() -> None:
    authority, tls, seconds = trustme.CA(), ssl.create_default_context(), [0.0]
    authority.configure_trust(tls)
    batch = PushBatch(TOPIC.name, "g", "binary", (Attempt(make.message(), 1),))
    with http_receiver() as host, closing(public_egress_to(host, tls)) as egress:
        host.secure(authority.issue_cert("api.example.com"))
        out = sender(egress, lambda: time.monotonic() + seconds[0])

        def flood(later: float) -> tuple[set[str], list[str]]:
            """What became of 24 messages at once, each for a path of its own, and which paths were asked."""
            seconds[0] += later
            host.seen.clear()
            spellings = ("api.example.com", "API.example.com", "api.Example.com:443")
            urls = [f"https://{spellings[n % 3]}/{n}" for n in range(24)]
            hosts = [callback(make.group(TOPIC), "api.example.com", url) for url in urls]
            signed = [replace(each, secrets=(Secret("ab" * 32),)) for each in hosts]
            with ThreadPoolExecutor(8) as pool:
                results = list(pool.map(lambda each: out.send(each, batch, 30)[0], signed))
            asked = [request.path for request in host.seen if request.method == "OPTIONS"]
            return {result.verdict for result in results}, asked

        assert flood(0) == ({"FAILED"}, ["/"])
        assert flood(299) == ({"FAILED"}, [])
        host.headers["WebHook-Allowed-Origin"] = "*"
        assert [flood(later) for later in (2, 3500, 101)] == [
            ({"DONE"}, asked) for asked in (["/"], [], ["/"])
        ]
        host.status = 410
        assert flood(0) == ({"REFUSED"}, []), "and does not stop the host"
