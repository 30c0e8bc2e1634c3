"""Rows of scheduled jobs, rate limits, ends of logs and begun deletions that cannot be read keep nobody from work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain.append import KeyEntry
from chalicelib.domain.errors import Unreadable
from chalicelib.domain.rounds import Bookmark
from chalicelib.domain.segment import Tail
from chalicelib.domain.times import DAY_MS
from chalicelib.domain.token_bucket import Grant
from chalicelib.store.layout import META_OFFSET
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.damage import (
    Change,
    change_account,
    change_control,
    change_key_entry,
    change_round,
    change_row,
    having,
    without,
)
from tests.support.desk import Desk
from tests.support.stages import Stage

NO_TEXT = {"S": "?"}


@pytest.mark.parametrize(
    "damage",
    [
        without("e"),
        having("e", NO_TEXT),
        having("p", NO_TEXT),
        having("a", {"N": "7"}),
        having("o", {"N": "1"}),
    ],
    ids=range(5),
)
def test_a_place_that_cannot_be_read_is_none_and_the_next_is_kept_in_its_stead(
    stage: Stage, damage: Change
) -> None:
    rounds, job = stage.adapters.rounds, make.uid("job-")
    assert rounds.keep(job, Bookmark("a", 5, True))
    change_round(stage, "place", job, damage)
    found = rounds.bookmark(job)
    new = rounds.keep(job, replace(found, after="b", passed_ms=7, is_open=False))
    assert new == rounds.bookmark(job) == Bookmark("b", 7, False, found.version + 1)
    assert rounds.keep(job, found) is None, "it has its place"


@pytest.mark.parametrize("damage", [without("e"), having("e", NO_TEXT)], ids=range(2))
def test_watched_topics_are_listed_beside_one_whose_edition_cannot_be_read(
    stage: Stage, damage: Change
) -> None:
    marks, names = stage.adapters.marks, [make.uid("w-") for _ in range(2)]
    for name in names:
        marks.watch(name, 2)
    change_round(stage, "watched", names[0], damage)
    watched = marks.each_minute().watched
    assert [watched[name] for name in names] == [0, 2]


@pytest.mark.parametrize("damage", [without("t"), having("t", NO_TEXT)], ids=range(2))
def test_an_account_that_cannot_be_read_is_an_idle_one_and_kept_again(stage: Stage, damage: Change) -> None:
    buckets, account = stage.adapters.token_buckets, make.uid("a-")
    assert buckets.take(account, 10, 5, START_MS) == Grant(5)
    change_account(stage, account, damage)
    assert buckets.take(account, 10, 5, START_MS) == Grant(5)
    assert buckets.take(account, 10, 1, START_MS).count == 0


def test_messages_with_a_key_are_found_beside_one_whose_expiry_cannot_be_read(stage: Stage) -> None:
    keys, uid = stage.adapters.keys, make.uid("t-")
    entries = [KeyEntry(uid, "k", f"m{n}", START_MS + n, 4_000_000_000) for n in range(2)]
    keys.note(entries)
    change_key_entry(stage, entries[0], having("x", NO_TEXT))
    assert [entry.message_id for entry in keys.newest(uid, "k", None, None, None, 10)] == ["m1", "m0"]


@pytest.mark.parametrize("kind", ["topic", "group", "consumer"])
def test_a_note_of_a_deletion_that_cannot_be_read_is_passed_over_and_deleted(stage: Stage, kind: str) -> None:
    control = stage.adapters.control
    topic = make.topic(make.uid("t-"), uid=make.uid())
    group = make.group(topic, uid=make.uid())
    consumer = make.consumer(group)
    assert control.put_topic(topic, None)
    assert control.put_group(topic, group, None)
    assert control.put_consumer(topic, group, consumer, None)
    if kind == "topic":
        control.retire_topic(topic)
        change_control(stage, "retired", f"{topic.name}#{topic.uid}", having("version", NO_TEXT))
    elif kind == "group":
        control.retire_group(topic, group)
        change_control(stage, f"topic#{topic.uid}", f"retired#{group.name}#{group.uid}", without("uid"))
    else:
        control.retire_consumer(topic, group, consumer)
        place = f"left#{group.uid}#{consumer.name}#{consumer.uid}"
        change_control(stage, f"topic#{topic.uid}", place, without("uid"))
    assert control.retired_topics(topic.name) == []
    assert control.retired_groups(topic, group.name) == control.retired_groups(topic) == []
    assert control.retired_consumers(topic, group) == []
    control.delete_group(topic, group)
    control.delete_topic(topic)
    assert not control.topic(topic.name)
    assert not control.group(topic, group.name)
    assert not control.consumers(topic, group)


def test_a_token_that_cannot_be_read_can_be_revoked(stage: Stage) -> None:
    """Whom it lets in, nobody can say; and a later release may be able to read it."""
    control, token = stage.adapters.control, make.token(make.uid())
    assert control.put_token(token, None)
    change_control(stage, "tokens", token.id, without("scopes"))
    assert control.delete_token(token.id)
    assert not control.delete_token(token.id)
    assert control.token(token.id) is None


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_shard_whose_end_cannot_be_read_is_passed_over(stage: Stage, is_empty: bool) -> None:
    desk = Desk.at(stage, shards=2)
    bad, good = (desk.topic.shard_key(shard) for shard in range(2))
    log: Any = stage.adapters.log
    if not is_empty:
        desk.produce(make.draft("old", shard=bad.shard))
    log.checkpoint(bad, Tail(0))
    change_row(stage, bad, META_OFFSET, having("t", NO_TEXT))
    desk = Desk(stage, stage.process(), desk.topic)
    stage.clock.advance(DAY_MS)
    [refused] = desk.deps.producer.produce(desk.topic, [make.draft("to the bad one", shard=bad.shard)])
    assert isinstance(refused, Unreadable)
    assert str(bad) in refused.detail
    for n in range(4):
        desk.produce(make.draft(n))
    assert log.tail(good).offset == 3
