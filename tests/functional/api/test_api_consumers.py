"""Registered pull consumers over HTTP: heartbeat, rank, total, their shards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib.services.manage import contact
from tests.support.http import Client, Group, ShiftingClock


def shards_of(group: Group, consumer: str) -> tuple[Any, ...]:
    view = group.api.get(f"{group.path}/consumers/{consumer}").expect(200)
    return view["rank"], view["total"], view["shards"]


def test_a_consumer_is_registered_once_and_renewed_after(api: Client) -> None:
    group = api.topic().group()
    consumer = group.register("worker-1")
    assert (
        consumer.items()
        >= {"consumer": "worker-1", "kind": "pull", "state": "ACTIVE", "rank": 0, "total": 1}.items()
    )
    assert consumer["shards"] == [0, 1, 2, 3]
    again = api.put(f"{group.path}/consumers/worker-1").expect(200)
    assert {**again, "last_seen_at": None} == {**consumer, "last_seen_at": None}


def test_a_registered_consumer_looks_into_its_own_shards_first_and_leaves_others_their_part(
    api: Client, clock: ShiftingClock
) -> None:
    topic = api.topic(shards=4)
    group = topic.group()
    for name in ("a", "b"):
        group.register(name)
    for shard in range(4):
        topic.produce(shard, shard=shard)
        topic.produce(shard + 10, shard=shard)
    assert {n % 10 for n in group.bodies(2, consumer="b")} == {1, 3}
    assert len(group.bodies(consumer="a")) == 4
    clock.advance(2)
    assert len(group.receive()) == 2


def test_the_assignment_explains_itself(api: Client, clock: ShiftingClock) -> None:
    group = api.topic(shards=3).group()
    nobody = api.get(f"{group.path}/assignment").expect(200)
    assert [s["owner"] for s in nobody["shards"]] == [None, None, None]
    group.register("gone")
    clock.advance(31)
    group.register("a")
    group.register("b")
    view = api.get(f"{group.path}/assignment").expect(200)
    assert view["strategy"] == "mod"
    assert "mod 2" in view["why"]
    [offline] = view["offline"]
    assert offline["consumer"] == "gone"
    assert offline["why"].startswith("no heartbeat since ")
    assert view["consumers"] == [
        {"consumer": "a", "kind": "pull", "state": "ACTIVE", "rank": 0, "total": 2, "shards": [0, 2]},
        {"consumer": "b", "kind": "pull", "state": "ACTIVE", "rank": 1, "total": 2, "shards": [1]},
    ]
    assert [s["owner"] for s in view["shards"]] == ["a", "b", "a"]


def test_consumers_are_listed_page_by_page(api: Client) -> None:
    group = api.topic().group()
    for name in ("b", "c", "a"):
        group.register(name)
    pages = api.pages(f"{group.path}/consumers", 2)
    assert [[c["consumer"] for c in page] for page in pages] == [["a", "b"], ["c"]]


def consumers_of(group: Group) -> dict[str, Any]:
    page = group.api.get(f"{group.path}/consumers").expect(200)
    return {each["consumer"]: each for each in page["items"]}


def test_the_limit_of_consumers_counts_those_that_are_online(
    api: Client, clock: ShiftingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contact, "MAX_CONSUMERS", 2)
    group = api.topic().group()
    for name in ("a", "b"):
        group.register(name, expires_after_seconds=60)
    api.put(f"{group.path}/consumers/c").refused(422, "TOO_MANY_CONSUMERS")
    clock.advance(31)
    for name in ("c", "d"):
        group.register(name)
    clock.advance(31)
    group.register("e")
    assert list(consumers_of(group)) == ["c", "d", "e"]
    group.register("f")
    clock.advance(31)
    api.put(f"{group.path}/consumers/g").refused(422, "TOO_MANY_CONSUMERS")


def test_a_later_instance_takes_over_a_consumers_name(api: Client) -> None:
    topic = api.topic(mode="broadcast", shards=1)
    group = topic.group()
    other_token = api.new_token("consume")
    other = replace(group, api=api.with_token(other_token["token"]))
    assert group.register("c", instance="first")["instance"] == "first"
    assert group.receive(consumer="c", instance="first") == []
    assert other.heartbeat("c", instance="second")["instance"] == "second"
    for call, path in (("heartbeat", "consumers/c/heartbeat"), ("receive", "receive")):
        body = {"instance": "first", **({"consumer": "c"} if call == "receive" else {})}
        api.post(f"{group.path}/{path}", body).refused(409, "CONSUMER_TAKEN_OVER")
    assert group.receive(consumer="c") == [], "without an instance nothing is taken over"
    assert other.receive(consumer="c", instance="second") == []
    api.put(f"{group.path}/consumers/c", {"instance": "first"}).expect(200)
    api.post(f"{group.path}/receive", {"consumer": "c", "instance": "second"}).refused(
        409, "CONSUMER_TAKEN_OVER"
    )
    entries = api.get(f"/v1/audit?topic={topic.name}").expect(200)["items"]
    takeovers = [each for each in entries if "taken over" in each["object"]]
    assert len(takeovers) == 2
    assert takeovers[0]["object"].endswith(f"taken over from {other_token['id']}")
    assert takeovers[1]["token"]["id"] == other_token["id"]


def test_an_instance_that_waits_for_messages_gets_none_after_it_was_taken_over(
    api: Client, clock: ShiftingClock
) -> None:
    topic = api.topic(mode="broadcast", shards=1)
    group = topic.group()
    group.register("c", instance="first")

    def take_over() -> None:
        api.put(f"{group.path}/consumers/c", {"instance": "second"}).expect(200)
        topic.produce("x")

    clock.on_wait = take_over
    api.post(f"{group.path}/receive", {"consumer": "c", "instance": "first", "wait_seconds": 5}).refused(
        409, "CONSUMER_TAKEN_OVER"
    )
    assert group.bodies(consumer="c", instance="second") == ["x"]


def test_a_consumer_that_only_sends_heartbeats_loses_the_shards_with_a_backlog(
    api: Client, clock: ShiftingClock
) -> None:
    topic = api.topic(mode="serial", shards=2)
    group = topic.group()
    for name in ("a", "b"):
        group.register(name)

    def beat(minutes: int) -> None:
        for _ in range(minutes * 3):
            clock.advance(20)
            group.heartbeat("a")
            group.receive(consumer="b")

    beat(4)
    assert shards_of(group, "a") == (0, 2, [0]), "nothing waits there"
    topic.produce("x", shard=0)
    clock.advance(61)
    group.heartbeat("a")
    assert group.bodies(consumer="b") == ["x"]
    assert shards_of(group, "a") == (0, 2, [])
    assert group.receive(consumer="a") == []
    assert shards_of(group, "a") == (0, 2, [0])


def test_a_new_consumer_of_a_broadcast_asks_for_the_last_hour(api: Client, clock: ShiftingClock) -> None:
    topic = api.topic(mode="broadcast", shards=1)
    group = topic.group()
    group.register("before")
    topic.produce("old")
    clock.advance(3600)
    since = topic.produce("new")["accepted_at"]
    group.register("late", **{"from": since})
    assert group.bodies(consumer="late") == ["new"]
    assert group.bodies(consumer="before") == ["old", "new"]
    api.post(f"{group.path}/seek", {"to": "earliest", "consumer": "late"}).expect(200)
    assert group.bodies(consumer="late") == ["old", "new"]
    assert group.bodies(consumer="before") == [], "the others stay where they are"
    queue = topic.group("queue", mode="queue")
    api.put(f"{queue.path}/consumers/c", {"from": "earliest"}).refused(422, "WRONG_MODE")
    api.post(f"{queue.path}/seek", {"to": "earliest", "consumer": "c"}).refused(422, "WRONG_MODE")
    api.post(f"{group.path}/seek", {"to": 0, "consumer": "x"}).refused(404, "CONSUMER_NOT_FOUND")
