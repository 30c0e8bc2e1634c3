"""Retention ends when it ends, whether TTL comes in time, late or never: no consumer gets a message past it, and what a
group still owes becomes a dead letter."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from chalicelib.domain.errors import NotFound
from chalicelib.domain.ladder import Retry
from chalicelib.domain.limits import MAX_PASSED_OVER
from chalicelib.domain.message import Message
from chalicelib.domain.status import Status
from chalicelib.domain.times import DAY_MS, HOUR_MS, SECOND_MS
from chalicelib.domain.topic import Group
from chalicelib.scheduler.expirer import PROOF
from chalicelib.services.consume.settle import Nack
from chalicelib.services.inspect.lookup import Filters
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.desk import Desk, offsets
from tests.support.stages import Stage
from tests.support.troubled import Counted

Pass = Callable[[int], None]


@pytest.fixture(params=["in time", "never"])
def ttl(request: pytest.FixtureRequest, empty_stage: Stage) -> Pass:
    """Lets time pass, in which TTL comes by or not."""

    def passes(ms: int) -> None:
        empty_stage.clock.advance(ms)
        if request.param == "in time":
            empty_stage.drop_expired()

    return passes


def letters(desk: Desk, group: Group) -> list[tuple[int, str]]:
    page = desk.deps.adapters.records.dead(desk.topic, group, None, 100)
    return [(letter.offset, letter.reason) for _, letter in page]


def listed(desk: Desk) -> list[int]:
    """In a process that has looked at nothing yet."""
    deps = desk.stage.process()
    return [m.offset for m in deps.lookup.newest_first(desk.topic, Filters(), 100, None)[0]]


def shows(desk: Desk, message_id: str) -> bool:
    try:
        desk.stage.process().lookup.find(desk.topic, message_id)
    except NotFound:
        return False
    return True


@pytest.mark.parametrize("days", [1 / 24, 0.25, 1])
def test_what_a_group_owes_past_its_retention_is_buried_by_the_claim_that_meets_it(
    empty_stage: Stage, ttl: Pass, days: float
) -> None:
    desk = Desk.at(empty_stage, retention_days=days)
    group = desk.group()
    desk.produce(*make.drafts(3))
    ttl(round(days * DAY_MS) - 1)
    desk.produce(make.draft("young"))
    assert offsets(desk.receive(group, most=1)) == [0]
    ttl(1)
    assert offsets(desk.receive(group)) == [3]
    assert letters(desk, group) == [(1, "EXPIRED"), (2, "EXPIRED")]
    ttl(round(days * DAY_MS) - SECOND_MS)  # the first one's lease has lapsed
    desk.stage.process().expirer.run_once()
    assert letters(desk, group) == [(n, "EXPIRED") for n in range(3)]
    ttl(SECOND_MS)
    desk.stage.process().expirer.run_once()
    assert letters(desk, group) == [(n, "EXPIRED") for n in range(4)]


def test_what_is_done_is_gone_when_its_retention_ends(empty_stage: Stage, ttl: Pass) -> None:
    desk = Desk.at(empty_stage, retention_days=2)
    group = desk.group()
    places = desk.produce(*make.drafts(3, keys=("k",)))
    assert desk.drain(group) == [0, 1, 2]
    ttl(2 * DAY_MS - 1)
    assert listed(desk) == [2, 1, 0]
    assert all(shows(desk, place.id) for place in places)
    ttl(1)
    assert listed(desk) == []
    assert not any(shows(desk, place.id) for place in places)
    answer = desk.stage.process().key_lookup.newest_first(desk.topic, "k", Filters(), 10, None)
    assert answer == ([], None)
    ttl(5 * DAY_MS)
    assert listed(desk) == []
    assert letters(desk, group) == []


def test_what_is_owed_or_dead_shows_by_its_id_for_a_day_more(empty_stage: Stage, ttl: Pass) -> None:
    desk = Desk.at(empty_stage, retention_days=1)
    group = desk.group()
    owed_message, done_message = desk.produce(*make.drafts(2))
    messages = desk.receive(group, lease=2 * 3600)
    ttl(HOUR_MS)
    assert desk.ack(group, messages[1:]) == [None]
    assert desk.nack(group, messages[:1]) == [None]
    ttl(23 * HOUR_MS)
    assert listed(desk) == []
    for expected in ([], [(0, "EXPIRED")]):
        assert letters(desk, group) == expected
        assert [shows(desk, place.id) for place in (owed_message, done_message)] == [True, False]
        desk.stage.process().expirer.run_once()
    ttl(DAY_MS + SECOND_MS)
    assert not shows(desk, owed_message.id)
    assert letters(desk, group) == [(0, "EXPIRED")]


@pytest.mark.parametrize("where", ["earliest", 0, "@1"])
@pytest.mark.parametrize("days", [2 / 24, 2])
def test_who_begins_at_the_beginning_begins_with_what_is_kept(
    empty_stage: Stage, ttl: Pass, where: int | str, days: float
) -> None:
    desk = Desk.at(empty_stage, retention_days=days)
    sent_group = desk.group("sent")
    for _ in range(4):
        desk.produce(*make.drafts(2))
        assert len(desk.drain(sent_group)) == 2
        ttl(round(days * DAY_MS / 2))
    if isinstance(where, str):
        new = desk.group("new", begin=where)
        assert desk.drain(new) == [4, 5, 6, 7][2:]
        assert letters(desk, new) == []
    desk.seek(sent_group, where)
    assert desk.drain(sent_group) == [6, 7]
    assert letters(desk, sent_group) == []


def test_a_retention_that_is_shortened_counts_for_what_is_there(empty_stage: Stage, ttl: Pass) -> None:
    desk = Desk.at(empty_stage, retention_days=30)
    group, done_group = desk.group(), desk.group("done")
    owed_message, _ = desk.produce(*make.drafts(2))
    desk.drain(done_group)
    ttl(3 * DAY_MS)
    desk.deps.admin.put_topic(desk.topic.name, {"retention_days": 1})
    after = Desk(empty_stage, empty_stage.process(), desk.deps.catalog.topic(desk.topic.name))
    after.produce(make.draft("young"))
    assert listed(after) == [2]
    assert shows(after, owed_message.id), "one group owes it still"
    late_group = after.group("late")
    assert offsets(after.receive(late_group)) == [2]
    assert offsets(after.receive(group)) == [2]
    assert letters(after, group) == [(0, "EXPIRED"), (1, "EXPIRED")]
    assert letters(after, late_group) == letters(after, done_group) == []


def test_a_retention_that_is_shortened_twice_waits_for_the_oldest_rows(empty_stage: Stage) -> None:
    desk = Desk.at(empty_stage, retention_days=30)
    longest_ms = empty_stage.clock.now_ms() + desk.topic.retention_ms
    for days in (20, 1):
        topic, _ = desk.deps.admin.put_topic(desk.topic.name, {"retention_days": days})
        assert topic.rows_until_ms == longest_ms
        empty_stage.clock.advance(DAY_MS)


def test_a_retention_that_is_lengthened_does_not_keep_what_was_written_before(
    empty_stage: Stage, ttl: Pass
) -> None:
    """Its row dies under the old one, so what is owed is buried under the old one."""
    desk = Desk.at(empty_stage, retention_days=1)
    group = desk.group()
    desk.produce(*make.drafts(2))
    desk.deps.admin.put_topic(desk.topic.name, {"retention_days": 30})
    for _ in range(12):
        ttl(6 * HOUR_MS)
        empty_stage.process().expirer.run_once()
    assert letters(desk, group) == [(0, "EXPIRED"), (1, "EXPIRED")]
    after = Desk(empty_stage, empty_stage.process(), desk.deps.catalog.topic(desk.topic.name))
    assert offsets(after.receive(after.group("late"))) == []
    assert letters(after, after.deps.catalog.group(after.topic, "late")) == []


@pytest.mark.parametrize("mode", ["queue", "serial"])
def test_i1_no_row_goes_before_older_ones_when_the_retention_is_lowered_and_raised(
    empty_stage: Stage, mode: str
) -> None:
    """More older messages than a burial skips."""
    desk = Desk.at(empty_stage, mode=mode, retention_days=3)
    group = desk.group()
    desk.produce(*make.drafts(MAX_PASSED_OVER + 1))
    for days in (1, 3):
        desk.topic, _ = desk.deps.admin.put_topic(desk.topic.name, {"retention_days": days})
        desk.produce(make.draft())
    for _ in range(16):
        empty_stage.clock.advance(6 * HOUR_MS)
        empty_stage.process().expirer.run_once()
        empty_stage.drop_expired()
    assert desk.deps.surveyor.exact_group(desk.topic, group).dead == MAX_PASSED_OVER + 3


def test_rows_that_wait_for_the_archive_are_out_of_reach_all_the_same(empty_stage: Stage) -> None:
    desk = Desk.at(empty_stage, retention_days=1)
    group = desk.group()
    desk.produce(*make.drafts(2))
    desk.drain(group)
    desk.deps.admin.put_topic(desk.topic.name, {"retention_days": 30})
    archiving = Deps(replace(empty_stage.another(), archive=True))
    empty_stage.adapters.blobs.put(PROOF, json.dumps({"v": 1, "ranges": {}, "lost": {}}).encode())
    for _ in range(16):
        empty_stage.clock.advance(6 * HOUR_MS)
        archiving.expirer.run_once()
        empty_stage.drop_expired()
    assert len(desk.rows()) == 1, "it is kept"
    after = Desk(empty_stage, empty_stage.process(), archiving.catalog.topic(desk.topic.name))
    assert listed(after) == []
    assert after.receive(after.group("late")) == []


@pytest.mark.parametrize("mode", ["queue", "broadcast"])
def test_i1_what_waits_in_a_retry_lane_is_buried_before_its_row_goes(
    empty_stage: Stage, ttl: Pass, mode: str
) -> None:
    """The group is paused, for example, so that there are no claims."""
    desk = Desk.at(empty_stage, mode=mode, retention_days=1, retry=Retry(9, (1,), jitter=0.0))
    group = desk.group()
    consumer = desk.consumer(group, "one")
    desk.produce(*make.drafts(2))
    messages = desk.receive(group, consumer=consumer)
    assert desk.nack(group, messages, Nack(delay_ms=SECOND_MS)) == [None, None]
    ttl(SECOND_MS)
    desk.deps.mover.run_once()
    for _ in range(8):
        ttl(6 * HOUR_MS)
        empty_stage.process().expirer.run_once()
    assert letters(desk, group) == [(0, "EXPIRED"), (1, "EXPIRED")]
    assert desk.receive(group, consumer=consumer) == []


def test_i1_what_lies_in_a_retry_lane_behind_many_that_are_kept_is_buried_with_its_content(
    empty_stage: Stage, ttl: Pass
) -> None:
    """Retries enter the lane when they are due: of a group that is paused, old messages may lie behind young ones."""
    desk = Desk.at(empty_stage, retention_days=2, retry=Retry(9, (1,), jitter=0.0))
    group, kept_count = desk.group(), 2 * MAX_PASSED_OVER
    desk.produce(make.draft("old"))
    assert desk.nack(group, desk.receive(group), Nack(delay_ms=DAY_MS + HOUR_MS)) == [None]
    ttl(DAY_MS)
    desk.produce(*make.drafts(kept_count))
    assert set(desk.nack(group, desk.receive(group, most=kept_count), Nack(delay_ms=SECOND_MS))) == {None}
    for wait_ms in (SECOND_MS, HOUR_MS):
        ttl(wait_ms)
        desk.deps.mover.run_once()
    ttl(DAY_MS - HOUR_MS)
    empty_stage.process().expirer.run_once()
    (letter,) = [letter for _, letter in desk.deps.adapters.records.dead(desk.topic, group, None, 100)]
    assert (letter.message.offset, letter.message.draft.body) == (0, b'"old"')
    assert len(desk.drain(group)) == kept_count


def test_a_dead_letter_that_is_redriven_long_after_its_retention_is_delivered(
    empty_stage: Stage, ttl: Pass
) -> None:
    desk = Desk.at(empty_stage, retention_days=1)
    group = desk.group()
    desk.produce(make.draft("late"))
    ttl(DAY_MS)
    desk.stage.process().expirer.run_once()
    ttl(9 * DAY_MS)
    dead_letters = [letter for _, letter in desk.deps.adapters.records.dead(desk.topic, group, None, 100)]
    assert desk.deps.dead_letters.redrive(desk.topic, group, dead_letters) == 1
    (again,) = desk.receive(group)
    assert (again.message.draft.body, again.message.offset) == (b'"late"', 0)
    assert desk.ack(group, [again]) == [None]


def test_the_retention_of_a_delayed_message_begins_when_it_is_due(empty_stage: Stage, ttl: Pass) -> None:
    desk = Desk.at(empty_stage, retention_days=1)
    group = desk.group()
    due_ms = empty_stage.clock.now_ms() + 5 * DAY_MS
    desk.produce(make.draft("later", due_ms=due_ms))
    ttl(5 * DAY_MS)
    desk.deps.mover.run_once()
    ttl(DAY_MS - 1)
    assert offsets(desk.receive(group)) == [0]


def test_what_is_dead_shows_by_its_id_for_as_long_as_its_letter_is_there(
    empty_stage: Stage, ttl: Pass
) -> None:
    desk = Desk.at(empty_stage, retention_days=1)
    first, second = desk.group("first"), desk.group("second")
    dead_message, done_message = desk.produce(make.draft("dead"), make.draft("done"))
    for group in (first, second):
        messages = desk.receive(group)
        assert desk.ack(group, messages[1:]) == [None]
        assert desk.nack(group, messages[:1], Nack(dead_letter=True)) == [None]
    ttl(9 * DAY_MS)

    def body(message_id: str) -> bytes | None:
        deps = desk.stage.process()
        with pytest.raises(NotFound):
            deps.lookup.find(desk.topic, message_id)
        try:
            message = deps.lookup.find_with_dead_letters(desk.topic, message_id, lambda _: True)
        except NotFound:
            return None
        assert isinstance(message, Message)
        assert deps.statuses.of_topic(desk.topic).overall(message) == Status.DEAD
        return message.draft.body

    process = desk.stage.process()
    dead_letters, letter_lookup = process.dead_letters, process.letter_lookup
    (letter,) = letter_lookup.find(desk.topic, first, dead_message.id)
    dead_letters.edit(desk.topic, first, letter, b'"edited"')
    another = dead_message.id.replace(dead_message.id[:12], "x" * 12)
    assert [body(id) for id in (dead_message.id, done_message.id, another)] == [b'"dead"', None, None]
    (letter,) = letter_lookup.find(desk.topic, second, dead_message.id)
    dead_letters.discard(desk.topic, second, letter)
    assert body(dead_message.id) == b'"edited"', "nothing else is left of it"
    (letter,) = letter_lookup.find(desk.topic, first, dead_message.id)
    dead_letters.discard(desk.topic, first, letter)
    assert body(dead_message.id) is None


def buried_by(desk: Desk, *groups: Group) -> str:
    """The id of a message that is dead for these groups."""
    (message,) = desk.produce(make.draft("dead"))
    for group in groups:
        assert desk.nack(group, desk.receive(group), Nack(dead_letter=True)) == [None]
    return message.id


def anyone(group: str) -> bool:
    return True


def test_an_id_of_nothing_costs_little(empty_stage: Stage, ttl: Pass) -> None:
    desk = Desk.at(empty_stage, retention_days=1)
    groups = [desk.group(f"g-{n:02}") for n in range(34)]
    gone_id = buried_by(desk, groups[0], groups[-1])
    ttl(9 * DAY_MS)
    (there,) = desk.produce(make.draft("there"))

    def reads(id: str, may_use: Callable[[str], bool] = anyone, most: int = 99) -> tuple[bool, int]:
        """Is it found, and how often were a group's dead letters read?"""
        records = Counted(empty_stage.adapters.records)
        deps = Deps(replace(empty_stage.adapters, **cast(Any, {"records": records})))
        answers = iter(range(most))
        message = deps.lookup.in_dead_letters(
            desk.topic, id, may_use, lambda: next(answers, None) is not None
        )
        return message is not None, records.calls["letters_at"]

    another = there.id.replace(there.id[:12], "x" * 12)
    behind = f"{there.id[:-1]}9"
    assert [reads(id) for id in (another, behind)] == [(False, 0)] * 2
    assert reads(gone_id) == (True, 1)
    assert reads(gone_id, lambda name: name == "g-33") == (True, 1)
    assert reads(gone_id, lambda name: name != "g-00") == (False, 32), "so many groups are asked at most"
    assert reads(gone_id, most=0) == (False, 0)
