"""Delayed messages and dead letters: calls of the API on a store in memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, cast

import pytest

from chalicelib import wiring
from chalicelib.api.fields import at
from chalicelib.domain.times import HOUR_MS, HOUR_SECONDS
from chalicelib.domain.topic import CursorKey, cursor_key
from chalicelib.wiring import Deps
from tests.support.clock import Hasty, ManualClock
from tests.support.dead_letters import bury, retry_now
from tests.support.http import Client, Group, Topic
from tests.support.push import Inbox
from tests.support.troubled import Troubled
from tests.unit.routes.calls import change


def test_what_is_due_is_counted_once_however_much_of_it_is_due_in_one_millisecond(
    api: Client, clock: ManualClock
) -> None:
    topic, due_ms = api.topic(shards=1), clock.now_ms() + HOUR_MS
    for first, step in ((0, 0), (0, 0), (0, 0), (1, 1), (HOUR_MS, 1)):
        topic.batch([{"body": n, "deliver_at": at(due_ms + first + n * step)} for n in range(100)])
    counts, query = Counter[str](), ""
    while True:
        due = api.get(f"{topic.path}/due{query}").expect(200)
        counts.update({hour["at"]: hour["delayed"] for hour in due["hours"]})
        if due["until"] is None:
            break
        assert due["until"] > query.removeprefix("?from="), "it goes on"
        query = f"?from={due['until']}"
    assert counts == {at(due_ms): 400, at(due_ms + HOUR_MS): 100}


def test_what_a_page_has_postponed_does_not_come_by_again_but_what_was_edited_does(
    topic: Topic,
) -> None:
    first, second = (topic.produce(n, delay_seconds=HOUR_SECONDS * (n + 1))["id"] for n in range(2))
    before = change(topic, ids=[first], postpone_seconds=60).expect(200)["items"]
    page = change(topic, "?limit=1", postpone_seconds=2 * HOUR_SECONDS).expect(200)
    assert [item["id"] for item in [*before, *page["items"]]] == [first, first], "that was another call's"
    topic.api.call("PATCH", f"{topic.path}/messages/{second}", {"body": "edited"}).expect(200)
    rest = change(
        topic, f"?limit=9&page_token={page['next_page_token']}", postpone_seconds=2 * HOUR_SECONDS
    ).expect(200)
    assert [item["id"] for item in rest["items"]] == [second]


def test_each_is_postponed_once_though_the_pages_are_read_by_clocks_that_differ(
    topic: Topic, clock: ManualClock
) -> None:
    ids = [topic.produce(n, delay_seconds=HOUR_SECONDS + n)["id"] for n in range(3)]
    changed: list[str] = []
    query = ""
    for _ in range(9):
        page = change(topic, f"?limit=1{query}", postpone_seconds=HOUR_SECONDS).expect(200)
        changed += [item["id"] for item in page["items"]]
        if "next_page_token" not in page:
            break
        query = f"&page_token={page['next_page_token']}"
        clock.advance(-1_000)
    assert changed == ids


def test_those_from_a_time_on_are_changed_and_nobody_is_brought_before_now(
    topic: Topic, clock: ManualClock
) -> None:
    soon, late_id = (
        topic.produce(n, delay_seconds=delay)["id"]
        for n, delay in enumerate((HOUR_SECONDS, 3 * HOUR_SECONDS))
    )
    since = at(clock.now_ms() + 2 * HOUR_SECONDS * 1000)
    assert [i["id"] for i in change(topic, f"?from={since}", cancel=True).expect(200)["items"]] == [late_id]
    (item,) = change(topic, ids=[soon], postpone_seconds=-2 * HOUR_SECONDS).expect(200)["items"]
    assert item["deliver_at"] == at(clock.now_ms())


OTHERS = {"reason": "EXPIRED", "tag": "other", "key": "other", "since": "2999-01-01T00:00:00Z"}
OTHERS |= {"until": "2001-01-01T00:00:00Z", "error": "other"}
"""Values of filters that no dead letter of these tests has."""


def dead_letters(group: Group, count: int) -> list[str]:
    """Ids of messages that were buried."""
    ids = [group.topic.produce(n)["id"] for n in range(count)]
    group.nack(*group.receive(count), dead_letter=True)
    return ids


def test_a_letter_whose_body_is_gone_is_left_as_it_is(api: Client, deps: Deps) -> None:
    group = api.topic(shards=1).group()
    group.topic.produce("x" * 250_000)
    group.nack(*group.receive(), dead_letter=True)
    for name in deps.adapters.blobs.names("", "", 10):
        deps.adapters.blobs.delete(name)
    (item,) = api.call("PATCH", f"{group.path}/dead-letters", {"patch": {"n": 1}}).expect(200)["items"]
    assert item["error"]["code"] == "NO_JSON"


def test_a_redrive_that_takes_long_is_gone_on_with_by_its_token_and_no_other(
    topic: Topic, deps: Deps, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = topic.group()
    for _ in range(3):
        topic.batch([{"body": n, "tag": "t"} for n in range(70)])
        bury(group)
    slow = Deps(replace(deps.adapters, clock=Hasty()))
    monkeypatch.setattr(wiring, "deps", lambda: slow)
    path = f"{group.path}/dead-letters/redrive"
    first = topic.api.post(path, {"filter": {"tag": "t"}}).expect(200)
    token = first["next_page_token"]
    for other in ({}, {"filter": {"tag": "u"}}, {"filter": {"tag": "t", "reason": "REJECTED"}}):
        topic.api.post(path, {**other, "page_token": token}).refused(400, "PAGE_TOKEN_INVALID")
    topic.api.post(path, {"ids": ["m"], "page_token": token}).refused(400, "PAGE_TOKEN_INVALID")
    counts, answer = [first["redriven"]], first
    while "next_page_token" in answer:
        more = {"filter": {"tag": "t"}, "page_token": answer["next_page_token"]}
        counts.append((answer := topic.api.post(path, more).expect(200))["redriven"])
    assert sum(counts) == 210


def test_i20_a_retry_of_a_broadcast_ends_where_an_outcome_is_unknown_and_who_has_it_is_woken(
    api: Client, deps: Deps, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = broadcast(api, "abc", buries="abc")
    (id,) = ids_of(group, "a")
    keys = [key_of(deps, group, name) for name in "bc"]
    records = Troubled(deps.adapters.records, lambda call, *place: call == "dead_letter" and place[0] in keys)
    process = Deps(replace(deps.adapters, records=cast(Any, records)))
    monkeypatch.setattr(wiring, "deps", lambda: process)
    inbox.asked.clear()
    retry_now(group, id).refused(503, "UNAVAILABLE")
    assert records.refused == 1, "the store is busy, and is asked no more"
    assert [event["group"] for function, event in inbox.asked if function == "deliver"] == ["g"]
    assert [each["attempt"] for each in group.receive(consumer="a")] == [2]
    monkeypatch.setattr(wiring, "deps", lambda: deps)
    retry_now(group, id).expect(200)
    assert [len(group.receive(consumer=name)) for name in "bc"] == [1, 1]


def broadcast(api: Client, consumers: str, *, buries: str) -> Group:
    """A broadcast with a message that some of its consumers, and of its subscribers, have refused."""
    group = api.topic(shards=1, mode="broadcast").group()
    for name in consumers:
        group.register(name)
    api.put(f"{group.path}/consumers/pushed", {"url": "https://hooks.example.com"}).expect(201)
    group.topic.produce("x")
    for name in buries:
        assert bury(group, consumer=name)
    return group


def ids_of(group: Group, consumer: str) -> list[str]:
    items = group.api.get(f"{group.path}/dead-letters").expect(200)["items"]
    return [item["id"] for item in items if item["consumer"] == consumer]


def key_of(deps: Deps, group: Group, consumer: str) -> CursorKey:
    topic = deps.catalog.topic(group.topic.name)
    group_there = deps.catalog.group(topic, group.name)
    return cursor_key(topic, group_there, 0, deps.catalog.consumer(topic, group_there, consumer).uid)
