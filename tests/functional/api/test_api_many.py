"""Calls for many: dead letters deleted and redriven at a rate, waiting deliveries retried, transactions asked about."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.api.fields import at
from tests.support.background import Background
from tests.support.dead_letters import bury, letters
from tests.support.http import Client, Group, ShiftingClock


def many(group: Group, call: str, **body: Any) -> Any:
    return group.api.post(f"{group.path}/{call}", body).expect(200)


def buried(api: Client, *tags: str) -> Group:
    topic = api.topic(shards=1)
    group = topic.group()
    for tag in tags:
        topic.produce(tag, tag=tag, keys=[f"key-{tag}"])
    bury(group, "no such account")
    return group


def left(group: Group) -> list[Any]:
    return [letter["body"] for letter in letters(group)]


@pytest.mark.parametrize(
    ("choice", "gone"),
    [
        ({"tag": "a"}, "a"),
        ({"key": "key-b"}, "b"),
        ({"reason": "REJECTED", "error": "such acc"}, "abc"),
        ({"error": "another"}, ""),
        ({"until": "2000-01-01T00:00:00Z"}, ""),
    ],
)
def test_dead_letters_are_deleted_by_a_filter(api: Client, choice: Any, gone: str) -> None:
    group = buried(api, "a", "b", "c")
    preview = many(group, "dead-letters/delete", filter=choice, dry_run=True)
    assert (preview["count"], len(preview["sample"])) == (len(gone), len(gone))
    assert left(group) == ["a", "b", "c"]
    assert many(group, "dead-letters/delete", filter=choice) == {"deleted": len(gone)}
    assert left(group) == [tag for tag in "abc" if tag not in gone]
    assert group.topic.counts()["dead"] == 3 - len(gone)


@pytest.mark.parametrize("body", [{}, {"filter": {}}, {"filter": {}, "confirm": "other"}])
def test_all_dead_letters_are_deleted_only_with_the_groups_name(api: Client, body: Any) -> None:
    group = buried(api, "a", "b")
    path = f"{group.path}/dead-letters/delete"
    api.post(path, body).refused(400, "CONFIRM_MISSING")
    assert left(group) == ["a", "b"]
    api.post(path, {"ids": ["x"], "filter": {}}).refused(422, "CHOICE_AMBIGUOUS")
    assert api.post(path, {**body, "confirm": "g"}).expect(200) == {"deleted": 2}
    assert left(group) == []


@pytest.mark.parametrize(("call", "counted"), [("delete", "deleted"), ("redrive", "redriven")])
def test_a_plan_takes_no_letter_younger_than_it_and_holds_ten_minutes(
    api: Client, clock: ShiftingClock, call: str, counted: str
) -> None:
    group = buried(api, "a", "b")
    plan = many(group, f"dead-letters/{call}", dry_run=True)["plan"]
    clock.advance(1)
    group.topic.produce("young")
    bury(group)
    path = f"{group.path}/dead-letters/{call}"
    other = "redrive" if call == "delete" else "delete"
    api.post(f"{group.path}/dead-letters/{other}", {"plan": plan}).refused(422, "PLAN_INVALID")
    api.post(path, {"plan": plan, "filter": {}}).refused(422, "CHOICE_AMBIGUOUS")
    assert api.post(path, {"plan": plan}).expect(200) == {counted: 2}
    assert left(group) == ["young"]
    clock.advance(600)
    api.post(path, {"plan": plan}).refused(422, "PLAN_INVALID")


def test_more_than_a_call_takes_is_done_page_by_page(api: Client) -> None:
    group = buried(api, *"abcde")
    body: dict[str, Any] = {"filter": {"reason": "REJECTED"}, "limit": 2}
    path, counts = f"{group.path}/dead-letters/delete", []
    while True:
        answer = api.post(path, body).expect(200)
        counts.append(answer["deleted"])
        if "next_page_token" not in answer:
            break
        body["page_token"] = answer["next_page_token"]
        api.post(path, {**body, "filter": {}, "confirm": "g"}).refused(400, "PAGE_TOKEN_INVALID")
    assert (counts, left(group)) == ([2, 2, 1], [])


def test_a_redrive_at_a_rate_sends_the_nth_after_n_divided_by_the_rate_over_pages_too(
    api: Client, background: Background, clock: ShiftingClock
) -> None:
    group = buried(api, *"abcdef")
    earliest_ms = clock.now_ms()
    first = many(group, "dead-letters/redrive", rate=2, limit=4)
    latest_ms = clock.now_ms()
    second = many(group, "dead-letters/redrive", rate=2, limit=4, page_token=first["next_page_token"])
    assert (first["redriven"], second) == (4, {"redriven": 2})
    assert (left(group), group.topic.counts()["retrying"]) == ([], 6)
    came = list[str]()
    for seconds in (0, 1, 1, 1):
        least = (clock.now_ms() + seconds * 1000 - latest_ms) // 500
        background.pass_time(seconds)
        came += sorted(group.bodies())
        assert min(least, 6) <= len(came) <= (clock.now_ms() - earliest_ms) // 500
    assert came == [*"abcdef"]


def test_a_pause_stops_a_redrive(api: Client, background: Background) -> None:
    group = buried(api, "a", "b")
    many(group, "dead-letters/redrive", rate=1)
    api.post(f"{group.path}/pause").expect(200)
    background.pass_time(5)
    assert group.bodies() == []
    api.post(f"{group.path}/resume").expect(200)
    assert sorted(group.bodies(wait_seconds=1)) == ["a", "b"]


@pytest.mark.parametrize("mode", ["queue", "serial"])
@pytest.mark.parametrize("where", ["shard", "lane"])
def test_all_that_wait_for_a_retry_are_retried_now(
    api: Client, background: Background, mode: str, where: str
) -> None:
    topic = api.topic(shards=2, mode=mode)
    group = topic.group()
    for tag in "abc":
        topic.produce(tag, tag=tag, shard=ord(tag) % 2, ordering_key=tag)
    if where == "lane":
        bury(group)
        many(group, "dead-letters/redrive")
    messages = {each["body"]: each for each in group.receive(wait_seconds=1)}
    group.nack(messages["a"], messages["b"], reason="bank is away", delay_seconds=3600)
    group.nack(messages["c"], reason="other", delay_seconds=3600)
    assert many(group, "retry", filter={"error": "bank"}, dry_run=True)["count"] == 2
    assert many(group, "retry", filter={"error": "bank", "tag": "b"}) == {"retried": 1}
    assert group.bodies(wait_seconds=1) == ["b"]
    assert many(group, "retry", ids=[messages["b"]["id"], messages["c"]["id"]]) == {"retried": 1}
    assert many(group, "retry", filter={}) == {"retried": 1}
    assert many(group, "retry", filter={}) == {"retried": 0}
    assert sorted(group.bodies(wait_seconds=1)) == ["a", "c"]


def test_in_a_broadcast_one_consumer_or_all_are_retried(api: Client) -> None:
    topic = api.topic(shards=1, mode="broadcast")
    group = topic.group()
    for name in ("one", "two"):
        group.register(name)
    topic.produce("x")
    for name in ("one", "two"):
        group.nack(*group.receive(consumer=name), delay_seconds=3600)
    assert many(group, "retry", dry_run=True)["count"] == 2
    assert many(group, "retry", consumer="two") == {"retried": 1}
    assert group.bodies(consumer="two", wait_seconds=1) == ["x"]
    assert many(group, "retry") == {"retried": 1}
    assert group.bodies(consumer="one", wait_seconds=1) == ["x"]
    api.post(f"{group.path}/retry", {"consumer": "three"}).refused(404, "CONSUMER_NOT_FOUND")


@pytest.mark.soak  # slow
def test_dead_letters_end_after_the_topics_days(
    api: Client, clock: ShiftingClock, background: Background
) -> None:
    topic = api.topic(shards=1, dead_letter_days=2)
    group = topic.group()
    for day in range(3):
        topic.produce(day)
        bury(group)
        clock.advance(86_400)
    background.deps.expirer.run_once()
    assert left(group) == [2]
    assert topic.counts()["dead"] == 1
    api.put(topic.path, {"dead_letter_days": None}).expect(200)
    clock.advance(86_400 * 3)
    background.deps.expirer.run_once()
    assert left(group) == [2]
    assert at(clock.now_ms()) > letters(group)[0]["dead_at"]
