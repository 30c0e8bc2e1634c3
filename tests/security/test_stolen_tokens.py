"""An attacker who holds a token, or none, and tries every call on the data of others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chalicelib.api import openapi, resources
from chalicelib.api.calls import CALLS, Call
from chalicelib.domain.times import DAY_SECONDS
from chalicelib.store.layout import definitions
from tests.support.day import World, a_world
from tests.support.http import Client, Reply
from tests.support.roles import Guard

EXAMPLES = json.loads(Path(openapi.__file__).with_name("examples.json").read_text())
MARK = "v1ct1m"
"""In the names and contents of all that is the victim's."""
assert resources


@dataclass(frozen=True)
class Victim:
    """Something of every kind, by the names of path parameters; ids by what stands before them in the path."""

    topic: str
    group: str
    consumer: str
    ids: dict[str, str]

    def path(self, entry: Call) -> str:
        """The call's path, to what is the victim's."""
        before_id = entry.path.split("/{id}")[0].rpartition("/")[2]
        names = {"topic": self.topic, "group": self.group, "consumer": self.consumer, "name": "rocketmq"}
        names["schedule"] = names["job"] = MARK
        return entry.path.format(**names, id=self.ids.get(before_id, ""))


def victim_of(world: World) -> Victim:
    api, topic, group = world.api, f"{MARK}-orders", f"{MARK}-mail"
    api.put(f"/v1/topics/{topic}").expect(201)
    api.put(f"/v1/topics/{topic}/groups/{group}", {"from": "earliest"}).expect(201)
    api.put(f"/v1/topics/{topic}/groups/{group}/consumers/{MARK}").expect(201)
    message_id = api.post(f"/v1/topics/{topic}/messages", {"body": MARK, "keys": [MARK]}).expect(201)["id"]
    api.post(f"/v1/topics/{topic}/messages", {"body": MARK}).expect(201)
    receive = f"/v1/topics/{topic}/groups/{group}/receive"
    receipts = [api.post(receive, {"max": 1}).expect(200)["messages"][0]["receipt"]]
    settlement = {"receipts": receipts, "dead_letter": True}
    api.post(f"/v1/topics/{topic}/groups/{group}/nack", settlement).expect(200)
    [letter] = api.get(f"/v1/topics/{topic}/groups/{group}/dead-letters").expect(200)["items"]
    transaction = api.post(f"/v1/topics/{topic}/transactions", {"message": {"body": MARK}}).expect(201)
    token = api.post("/v1/tokens", {"name": MARK, "scopes": ["produce"]}).expect(201)["id"]
    span = {"from": "2030-01-01T00:00:00.000Z", "to": "2030-01-02T00:00:00.000Z"}
    replay = api.post(f"/v1/topics/{topic}/replays", span).expect(202)["replay_id"]
    job = {"body": MARK, "delay_seconds": 600}
    api.put(f"/v1/topics/{topic}/jobs/{MARK}", job).expect(201)
    schedule = {"topic": topic, "message": {"body": MARK}, "cron": "@daily"}
    api.put(f"/v1/schedules/{MARK}", schedule).expect(201)
    ids = {
        "messages": message_id,
        "dead-letters": letter["id"],
        "transactions": transaction["transaction_id"],
    }
    return Victim(topic, group, MARK, {**ids, "tokens": token, "replays": replay})


def rows(world: World) -> dict[str, list[str]]:
    """All that is stored, but for when tokens were used and what was tried."""
    client = world.adapters.log._dynamo.client
    tables = {}
    for definition in definitions(world.tables):
        name = definition["TableName"]
        items = client.scan(TableName=name, ConsistentRead=True)["Items"]
        lines = (repr(sorted(item.items())) for item in items if item.get("pk") != {"S": "used"})
        tables[name] = sorted(lines)
    del tables[world.tables.audit]
    return tables


@dataclass
class Attacker:
    """Tries calls, and counts."""

    client: Client
    victim: Victim
    tries: int = 0

    def tries_to(self, entry: Call) -> Reply:
        self.tries += 1
        path = self.victim.path(entry)
        if entry.handler.__name__ == "publish":
            return self.client.call(entry.method, path, raw=b"x")
        body = EXAMPLES.get(entry.handler.__name__, {}).get("request")
        if entry.body is not None and body is None:
            body = {}
        if isinstance(body, dict) and "group" in body:
            body = {**body, "group": self.victim.group}
        return self.client.call(entry.method, path, body)

    def unasked(self, entry: Call, reply: Reply) -> bytes:
        """What an answer says beside the path that was called."""
        return reply.raw.replace(self.victim.path(entry).encode(), b"")


GUARDED = [entry for entry in CALLS if entry.scopes]
EVERY_SCOPE = ("produce", "consume", "admin")
OF_ALL_GROUPS = {
    *("retry_now", "settle_message", "list_tokens", "delete_token", "get_made", "list_audit"),
    *("put_topic", "delete_topic", "purge_topic", "create_replay"),
}
"""Calls that no token of some groups may make, though their path names none."""


@pytest.fixture(scope="module")
def world(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with a_world(Guard(), tmp_path_factory.mktemp("stage")) as world:
        yield world


def client_with(world: World, *scopes: str, **limits: Any) -> Client:
    """The client of an attacker whose token may do that."""
    token = world.api.post("/v1/tokens", {"name": "attacker", "scopes": list(scopes), **limits}).expect(201)
    return world.api.with_token(token["token"])


def revoke(world: World, client: Client) -> None:
    for token in world.api.pages("/v1/tokens", 200)[0]:
        if client.token and token["id"] in client.token:
            world.api.delete(f"/v1/tokens/{token['id']}").expect(204)


def is_shut_out(attacker: Attacker) -> None:
    for entry in GUARDED:
        attacker.tries_to(entry).refused(401, "UNAUTHORIZED")


def lacks_scopes(attacker: Attacker, scope: str) -> None:
    for entry in GUARDED:
        if scope not in entry.scopes:
            attacker.tries_to(entry).refused(403, "SCOPE_MISSING")


HARMLESS = ("/v1/sign-in-links", "/v1/schedules/preview")
FOR_ANY_TOKEN = (
    *("/v1/topics", "/v1/stats", "/v1/attention", "/v1/archive", "/v1/ladders/{name}"),
    *("/v1/schedules", "/v1/schedules/preview"),
)


def reaches_no_other_topic(attacker: Attacker) -> None:
    for entry in GUARDED:
        reply = attacker.tries_to(entry)
        if entry.path == "/v1/sign-in-links":
            assert reply.status == 201  # for itself
        elif entry.path in FOR_ANY_TOKEN:
            assert reply.status == 200
        else:
            assert reply.status in (403, 404), (entry.path, reply.raw)
        assert MARK.encode() not in attacker.unasked(entry, reply), entry.path


def reaches_no_other_group(attacker: Attacker) -> None:
    for entry in GUARDED:
        name = entry.handler.__name__
        if "{group}" in entry.path or name in OF_ALL_GROUPS:
            attacker.tries_to(entry).refused(403, "GROUP_FORBIDDEN")
        if name in ("create_token", "rotate_token"):
            attacker.tries_to(entry).refused(403, "TOO_MUCH")
        if entry.path.startswith("/v1/replays/"):
            attacker.tries_to(entry).refused(404, "REPLAY_NOT_FOUND")
        if entry.method == "GET" or "/messages/{id}" in entry.path:
            rest = attacker.unasked(entry, attacker.tries_to(entry))
            assert attacker.victim.group.encode() not in rest, f"{entry.path} names a group of others"
        if name == "list_replays":
            assert attacker.tries_to(entry).expect(200)["items"] == []


def finds_no_message_that_only_another_group_has(attacker: Attacker) -> None:
    """Its row has expired; a dead letter is left of it."""
    for entry in GUARDED:
        if "/messages/{id}" in entry.path and entry.handler.__name__ not in OF_ALL_GROUPS:
            attacker.tries_to(entry).refused(404, "MESSAGE_NOT_FOUND")


def changes_nothing_that_all_groups_would_feel(administrator: Attacker) -> None:
    for entry in GUARDED:
        changes = entry.method != "GET" and "admin" in entry.scopes and entry.path not in HARMLESS
        if changes and not entry.path.startswith("/v1/replays/"):
            makes_tokens = entry.handler.__name__ in ("create_token", "rotate_token")
            administrator.tries_to(entry).refused(403, "TOO_MUCH" if makes_tokens else "GROUP_FORBIDDEN")


def assert_nothing_was_lost_and_only_tokens_were_added(world: World, before: dict[str, list[str]]) -> None:
    after = rows(world)
    new_lines = {name: set(after[name]) - set(lines) for name, lines in before.items()}
    assert {name for name, lines in new_lines.items() if lines} <= {world.tables.control}
    assert all("attacker" in line for line in new_lines[world.tables.control])
    assert all(set(lines) <= set(after[name]) for name, lines in before.items()), "something was lost"


def test_no_token_reaches_what_it_was_not_made_for(world: World) -> None:
    victim = victim_of(world)
    attackers: list[Attacker] = []

    def attacker(client: Client) -> Attacker:
        attackers.append(Attacker(client, victim))
        return attackers[-1]

    revoked_client, expired_client = (
        client_with(world, "admin"),
        client_with(world, "admin", expires_in_days=1),
    )
    elsewhere = client_with(world, *EVERY_SCOPE, topics=["mine*"])
    other_group = client_with(world, *EVERY_SCOPE, groups=["mine*"])
    revoke(world, revoked_client)
    before = rows(world)
    token = f"hr_{'0' * 12}_{'a' * 59}"
    for client in (world.api.with_token(None), world.api.with_token(token), revoked_client):
        is_shut_out(attacker(client))
    for scope in EVERY_SCOPE:
        lacks_scopes(attacker(client_with(world, scope)), scope)
    reaches_no_other_topic(attacker(elsewhere))
    reaches_no_other_group(attacker(other_group))
    changes_nothing_that_all_groups_would_feel(attacker(client_with(world, "admin", groups=["mine*"])))
    assert_nothing_was_lost_and_only_tokens_were_added(world, before)
    world.clock.advance(DAY_SECONDS + 1)
    is_shut_out(attacker(expired_client))
    world.clock.advance(8 * DAY_SECONDS)
    finds_no_message_that_only_another_group_has(attacker(other_group))
    tries = sum(each.tries for each in attackers)
    print(f"{tries} tries with stolen, limited or no tokens: none came through")


def test_a_receive_id_of_another_token_or_consumer_is_another_receive(world: World) -> None:
    """The first holder numbers its receives: who knows the habit gets none of its messages or receipts."""
    topic = world.api.topic(shards=2)
    group = topic.group()
    group.register("one")
    topic.batch([{"body": n} for n in range(6)])
    path, asked = f"{group.path}/receive", {"max": 2, "receive_id": "1"}
    holder, attacker = client_with(world, "consume"), client_with(world, "consume")
    answers = [
        client.post(path, {**asked, **more}).expect(200)["messages"]
        for client, more in ((holder, {}), (attacker, {}), (holder, {"consumer": "one"}))
    ]
    assert len({each["receipt"] for messages in answers for each in messages}) == 6
    assert holder.post(path, asked).expect(200)["messages"] == answers[0]
    others = client_with(world, "consume", groups=["mine*"])
    assert "because" not in others.post(path, asked).refused(403, "GROUP_FORBIDDEN")


def test_a_token_of_a_tenant_sends_for_no_other(world: World) -> None:
    world.api.put("/v1/topics/tenants").expect(201)
    token = client_with(world, "produce", "admin", tenant="acme")
    path, other = "/v1/topics/tenants", {"body": 1, "tenant": "victim"}
    batch = token.post(f"{path}/messages/batch", {"messages": [other, {"body": 2}]}).expect(200)["results"]
    assert batch[0]["error"]["code"] == "TENANT_FORBIDDEN"
    daily = {"topic": "tenants", "cron": "0 9 * * *"}
    span = {"from": "2030-01-01T00:00:00.000Z", "to": "2030-01-02T00:00:00.000Z"}
    replay = world.api.post(f"{path}/replays", span).expect(202)["replay_id"]
    attempts = [
        ("POST", f"{path}/messages", other),
        ("PUT", f"{path}/jobs/a", other),
        ("POST", f"{path}/transactions", {"message": other}),
        ("PUT", "/v1/schedules/t1", {**daily, "message": other}),
        ("POST", f"{path}/replays", span),
        ("POST", "/v1/tokens", {"name": "t", "scopes": ["produce"], "tenant": "victim"}),
    ]
    for method, where, body in attempts:
        token.call(method, where, body).refused(403, "TENANT_FORBIDDEN")
    token.call("POST", f"/v1/replays/{replay}/messages", {"messages": [{}]}).refused(404, "REPLAY_NOT_FOUND")
    everybodys = world.api.post("/v1/tokens", {"name": "t", "scopes": ["produce"]}).expect(201)["id"]
    token.post(f"/v1/tokens/{everybodys}/rotate").refused(403, "TENANT_FORBIDDEN")
    heir = token.post("/v1/tokens", {"name": "t", "scopes": ["produce"]}).expect(201)
    own = world.api.with_token(heir["token"]).post(f"{path}/messages", {"body": 3}).expect(201)["id"]
    schedule = token.put("/v1/schedules/t1", {**daily, "message": {"body": 4}}).expect(201)
    tenants = [world.api.get(f"{path}/messages/{id}").expect(200)["tenant"] for id in (batch[1]["id"], own)]
    assert (tenants, heir["tenant"], schedule["message"]["tenant"]) == (["acme", "acme"], "acme", "acme")
