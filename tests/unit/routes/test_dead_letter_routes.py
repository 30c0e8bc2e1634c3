"""Dead letters: calls of the API on a store in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from chalicelib import wiring
from chalicelib.api.lists import LETTER_FILTERS
from chalicelib.domain.topic import CursorKey, cursor_key
from chalicelib.wiring import Deps
from tests.support.clock import Hasty
from tests.support.dead_letters import bury, retry_now
from tests.support.http import Client, Group, Topic
from tests.support.push import Inbox
from tests.support.troubled import Troubled

OTHERS = {"reason": "EXPIRED", "tag": "other", "key": "other", "since": "2999-01-01T00:00:00Z"}
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


def test_of_the_named_letters_so_many_are_sent_again(topic: Topic) -> None:
    group = topic.group()
    ids = dead_letters(group, 3)
    body = {"ids": ids, "limit": 2}
    assert topic.api.post(f"{group.path}/dead-letters/redrive", body).expect(200) == {"redriven": 2}


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
    topic.api.post(path, {"ids": ["m"], "page_token": token}).refused(422, "REDRIVE_AMBIGUOUS")
    counts, answer = [first["redriven"]], first
    while "next_page_token" in answer:
        more = {"filter": {"tag": "t"}, "page_token": answer["next_page_token"]}
        counts.append((answer := topic.api.post(path, more).expect(200))["redriven"])
    assert sum(counts) == 210


@pytest.mark.parametrize("name", LETTER_FILTERS)
def test_each_filter_keeps_letters_out_of_the_list_of_a_change_and_of_a_redrive(
    topic: Topic, name: str
) -> None:
    group = topic.group()
    dead_letters(group, 1)
    path = f"{group.path}/dead-letters"
    listed = f"{path}?{name}={OTHERS[name]}"
    assert topic.api.get(listed).expect(200)["items"] == []
    assert topic.api.call("PATCH", listed, {"patch": {}}).expect(200)["items"] == []
    redrive = {"filter": {name: OTHERS[name]}}
    assert topic.api.post(f"{path}/redrive", redrive).expect(200) == {"redriven": 0}
    assert len(topic.api.get(path).expect(200)["items"]) == 1


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
