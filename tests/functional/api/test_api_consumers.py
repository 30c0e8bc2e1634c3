"""Registered pull consumers over HTTP: heartbeat, rank, total, their shards."""

from __future__ import annotations

from typing import Any

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


def test_shard_s_belongs_to_the_consumer_whose_rank_is_s_mod_total(api: Client) -> None:
    group = api.topic(shards=5).group()
    for name in ("b", "a", "c"):
        group.register(name)
    assert shards_of(group, "a") == (0, 3, [0, 3])
    assert shards_of(group, "b") == (1, 3, [1, 4])
    assert shards_of(group, "c") == (2, 3, [2])
    assert group.heartbeat("b").items() >= {"rank": 1, "total": 3, "shards": [1, 4]}.items()


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


def test_more_consumers_than_shards_leave_nobody_without(api: Client) -> None:
    topic = api.topic(shards=1)
    group = topic.group()
    group.register("a")
    group.register("b")
    topic.batch([{"body": n} for n in range(4)])
    assert shards_of(group, "b") == (1, 2, [])
    assert group.bodies(consumer="b") == [0, 1]
    assert group.bodies(consumer="a") == [2, 3]


def test_a_consumer_without_a_sign_of_life_loses_its_shards(api: Client, clock: ShiftingClock) -> None:
    group = api.topic(shards=2).group()
    group.register("a")
    group.register("b")
    clock.advance(25)
    group.heartbeat("b")
    assert shards_of(group, "a") == (0, 2, [0])
    clock.advance(6)
    assert shards_of(group, "b") == (0, 1, [0, 1])
    assert shards_of(group, "a") == (None, 1, [])
    group.heartbeat("a")
    assert shards_of(group, "b") == (1, 2, [1])


def test_receiving_is_a_sign_of_life(api: Client, clock: ShiftingClock) -> None:
    group = api.topic().group()
    group.register("a")
    for _ in range(4):
        clock.advance(20)
        group.receive(consumer="a")
    assert shards_of(group, "a") == (0, 1, [0, 1, 2, 3])


def test_a_consumer_that_leaves_gives_its_shards_to_the_others_at_once(api: Client) -> None:
    topic = api.topic(shards=2)
    group = topic.group()
    group.register("a")
    group.register("b")
    for shard in range(2):
        topic.produce(shard, shard=shard)
    assert api.delete(f"{group.path}/consumers/a").expect(204) is None
    assert sorted(group.bodies(consumer="b")) == [0, 1]
    for call in (api.get, api.delete):
        call(f"{group.path}/consumers/a").refused(404, "CONSUMER_NOT_FOUND")
    api.post(f"{group.path}/consumers/a/heartbeat").refused(404, "CONSUMER_NOT_FOUND")
    api.post(f"{group.path}/receive", {"consumer": "a"}).refused(404, "CONSUMER_NOT_FOUND")


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
