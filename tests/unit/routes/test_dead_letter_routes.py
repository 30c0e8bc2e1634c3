"""Dead letters: calls of the API on a store in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chalicelib import wiring
from chalicelib.api.list_filters import LETTER_FILTERS
from chalicelib.wiring import Deps
from tests.support.clock import Hasty
from tests.support.dead_letters import bury
from tests.support.http import Client, Group, Topic

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
