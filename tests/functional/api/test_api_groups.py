"""Groups over HTTP: settings, where they begin, pause, seek."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.api.fields import at
from tests.support import settings
from tests.support.http import Client, ShiftingClock

DEFAULTS = {row.name: row.default for row in settings.GROUP} | {
    "keep_answers": True,
    "mode": "queue",
    "filter": "*",
    "paused": False,
    "paused_until": None,
}


def test_a_new_group_has_the_documented_defaults(api: Client) -> None:
    topic = api.topic()
    group = api.put(f"{topic.path}/groups/g").expect(201)
    assert {name: group[name] for name in DEFAULTS} == DEFAULTS
    assert group.keys() == {*DEFAULTS, "group", "topic", "created_at"}
    assert api.put(f"{topic.path}/groups/g").expect(200) == group


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *((row.name, value) for row in settings.GROUP for value in settings.values(row)),
        ("from", "earliest"),
        ("from", "2026-01-01T00:00:00.123Z"),
        ("filter", "paid || refunded"),
    ],
)
def test_a_setting_that_is_given_is_kept_and_shown(api: Client, setting: str, value: Any) -> None:
    topic = api.topic()
    api.put(f"{topic.path}/groups/g", {setting: value}).expect(201)
    view = api.get(f"{topic.path}/groups/g").expect(200)
    assert {name: view[name] for name in DEFAULTS} == {**DEFAULTS, setting: value}


def test_a_group_has_the_mode_of_its_topic_unless_told_otherwise(api: Client) -> None:
    topic = api.topic(mode="broadcast")
    assert api.put(f"{topic.path}/groups/a").expect(201)["mode"] == "broadcast"
    assert api.put(f"{topic.path}/groups/b", {"mode": "serial"}).expect(201)["mode"] == "serial"


def test_a_groups_mode_is_for_life(api: Client) -> None:
    topic = api.topic()
    topic.group()
    api.put(f"{topic.path}/groups/g", {"mode": "serial"}).refused(409, "MODE_FIXED")
    api.put(f"{topic.path}/groups/g", {"mode": "queue"}).expect(200)


def test_a_group_is_shown_shard_by_shard(api: Client) -> None:
    topic = api.topic(shards=2)
    group = topic.group()
    group.register("c")
    topic.produce("x", shard=1)
    topic.produce("y", shard=1)
    [message] = group.receive(1, consumer="c")
    view = api.get(group.path).expect(200)
    assert (view["backlog"], view["in_flight"], view["retrying"], view["dead"]) == (2, 1, 0, 0)
    empty, full = view["shards"]
    assert (empty["shard"], empty["tail"], empty["floor"], empty["next"], empty["backlog"]) == (
        0,
        -1,
        0,
        0,
        0,
    )
    assert (full["shard"], full["tail"], full["floor"], full["next"], full["backlog"]) == (1, 1, 0, 1, 2)
    assert (empty["owner"], full["owner"]) == ("c", "c")
    [lease] = full["leases"]
    assert (lease["offsets"], lease["attempt"], lease["consumer"]) == ([[0, 0]], 1, "c")
    assert lease["expires_at"] > message["accepted_at"]


def test_groups_are_listed_page_by_page(api: Client) -> None:
    topic = api.topic()
    for name in ("b", "a", "c"):
        topic.group(name)
    pages = api.pages(f"{topic.path}/groups", 2)
    assert [[group["group"] for group in page] for page in pages] == [["a", "b"], ["c"]]


def test_a_deleted_group_is_gone_and_the_messages_stay(api: Client) -> None:
    topic = api.topic()
    group = topic.group()
    topic.produce("x")
    [message] = group.receive()
    assert api.delete(group.path).expect(204) is None
    api.get(group.path).refused(404, "GROUP_NOT_FOUND")
    api.post(f"{group.path}/receive").refused(404, "GROUP_NOT_FOUND")
    api.post(f"{group.path}/ack", {"receipts": [message["receipt"]]}).refused(404, "GROUP_NOT_FOUND")
    api.delete(group.path).refused(404, "GROUP_NOT_FOUND")
    again = topic.group()
    assert again.ack(message) == ["RECEIPT_INVALID"]
    assert again.bodies() == ["x"]


def test_messages_from_before_any_group_are_kept_for_one_from_the_earliest(api: Client) -> None:
    topic = api.topic()
    for n in range(5):
        topic.produce(n)
    assert sorted(topic.group("early").bodies()) == [0, 1, 2, 3, 4]
    late_group = topic.group("late", **{"from": "latest"})
    assert late_group.receive() == []
    topic.produce(5)
    assert late_group.bodies() == [5]


@pytest.mark.parametrize(
    "moment",
    ["", "now", "EARLIEST", "2026-01-01", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z",
     "1767225600", "2026-01-01T00:00:00Z ", "2026-W01-1T00:00:00Z", "20260101T000000.000Z", "2026-01-01T25:00:00Z",
     "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "\uff12026-01-01T00:00:00Z"],
)  # fmt: skip
def test_what_is_no_time_is_refused_and_no_group_is_made(api: Client, moment: str) -> None:
    topic = api.topic()
    problem = api.put(f"{topic.path}/groups/g", {"from": moment}).refused(400, "VALIDATION")
    assert problem["errors"][0]["path"] == "from"
    api.get(f"{topic.path}/groups/g").refused(404)


def test_a_group_with_a_filter_gets_only_its_tags(api: Client) -> None:
    topic = api.topic()
    group = topic.group(filter="paid || refunded")
    ids = [topic.produce(tag, tag=tag)["id"] for tag in ("paid", "new", "refunded", "paidx")]
    topic.produce("none")
    assert sorted(group.bodies()) == ["paid", "refunded"]
    assert group.receive() == []
    assert topic.counts()["backlog"] == 2
    assert (group.status_of(ids[1])["status"], group.status_of(ids[1])["attempts"]) == ("SUCCESS", 0)


@pytest.mark.parametrize(
    "text", ["a |b", "||", "a || ", "a b", "a ||| b", "a || || b", "a\tb", "x" * 129, "x" * 4097]
)
def test_a_filter_that_is_none_is_refused(api: Client, text: str) -> None:
    topic = api.topic()
    api.put(f"{topic.path}/groups/g", {"filter": text}).refused(400, "VALIDATION")


def test_a_pause_with_an_end_is_over_by_itself(api: Client, clock: ShiftingClock) -> None:
    topic = api.topic()
    group = topic.group()
    topic.produce("a")
    until = at(clock.now_ms() + 60_000)
    paused = api.post(f"{group.path}/pause", {"until": until}).expect(200)
    assert (paused["paused"], paused["paused_until"]) == (True, until)
    clock.advance(55)
    assert group.receive() == []
    clock.advance(5)
    assert len(group.receive()) == 1
    resumed = api.get(group.path).expect(200)
    assert (resumed["paused"], resumed["paused_until"]) == (False, None)
    api.post(f"{group.path}/pause", {"until": until}).refused(400, "VALIDATION")


@pytest.mark.parametrize("to", ["earliest", 0, "2000-01-01T00:00:00Z"])
def test_seeking_back_delivers_again_from_the_first_attempt(api: Client, to: Any) -> None:
    topic = api.topic()
    group = topic.group()
    for n in range(4):
        topic.produce(n)
    group.ack(*group.receive())
    view = api.post(f"{group.path}/seek", {"to": to}).expect(200)
    assert view["backlog"] == 4
    again = group.receive()
    assert sorted(m["body"] for m in again) == [0, 1, 2, 3]
    assert {m["attempt"] for m in again} == {1}


def test_seeking_one_shard_leaves_the_others(api: Client) -> None:
    topic = api.topic(shards=2)
    group = topic.group()
    for shard in (0, 0, 1, 1):
        topic.produce(shard, shard=shard)
    group.ack(*group.receive())
    api.post(f"{group.path}/seek", {"to": 1, "shard": 1}).expect(200)
    assert [(m["shard"], m["offset"]) for m in group.receive()] == [(1, 1)]
    api.post(f"{group.path}/seek", {"to": 0, "shard": 2}).refused(422, "NO_SUCH_SHARD")


@pytest.mark.parametrize("to", [-1, 1.5, None, True, "soon", "", [], {}])
def test_seeking_nowhere_is_refused_and_moves_nothing(api: Client, to: Any) -> None:
    topic = api.topic()
    group = topic.group()
    topic.produce("x")
    [message] = group.receive()
    api.post(f"{group.path}/seek", {"to": to}).refused(400)
    assert group.ack(message) == ["ok"]


def test_a_destination_is_another_topic_that_the_caller_may_use(api: Client) -> None:
    topic, target = api.topic(), api.topic()
    group = topic.group()
    to = {"topic": target.name, "include_body": True}
    for body, code in (
        ({"on_dead": {"topic": topic.name}}, "DESTINATION_REFUSED"),
        ({"on_success": {"topic": "not-there"}}, "DESTINATION_REFUSED"),
    ):
        assert api.put(group.path, body).expect(422)["code"] == code
    limited = api.with_token(api.new_token("admin", "produce", topics=[topic.name])["token"])
    for name in (target.name, "not-there"):  # whether it is there is not said
        assert limited.put(group.path, {"on_dead": {"topic": name}}).expect(403)["code"] == "TOPIC_FORBIDDEN"
    no_producer = api.with_token(api.new_token("admin")["token"])
    assert no_producer.put(group.path, {"on_dead": to}).expect(403)["code"] == "SCOPE_MISSING"
    assert api.put(group.path, {"on_dead": to, "on_success": to}).expect(200)["on_dead"] == to
    assert api.put(group.path, {"on_success": None}).expect(200)["on_success"] is None
    assert api.get(group.path).expect(200)["on_dead"] == to


def test_events_need_a_token_for_everything(api: Client) -> None:
    topic = api.topic()
    body = {"topic": topic.name, "types": ["headrace.message.dead"]}
    limited = api.with_token(api.new_token("admin", "produce", topics=[topic.name])["token"])
    for method, rest in (("PUT", body), ("GET", None), ("DELETE", None)):
        assert limited.call(method, "/v1/events", rest).expect(403)
    assert api.get("/v1/events").expect(200) == {"topic": None, "types": []}
    assert api.put("/v1/events", {"topic": "not-there"}).expect(422)["code"] == "DESTINATION_REFUSED"
    assert api.put("/v1/events", {**body, "types": ["headrace.other"]}).expect(400)
    assert api.put("/v1/events", body).expect(200) == body
    assert api.get("/v1/events").expect(200) == body
    assert len(api.put("/v1/events", {"topic": topic.name}).expect(200)["types"]) == 9
    for _ in range(2):
        api.delete("/v1/events").expect(204)
