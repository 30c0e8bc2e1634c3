"""Settlements of messages and leases, while other processes write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest

from chalicelib.domain.call_result import CallResult, PushBatch, Verdict
from chalicelib.domain.cursor import Disposition
from chalicelib.domain.ladder import Retry
from chalicelib.domain.record import Record
from chalicelib.domain.timer import Timer
from chalicelib.domain.times import HOUR_MS, SECOND_MS
from chalicelib.domain.topic import CursorKey, Group, cursor_key
from chalicelib.services.consume.decision import SettleDecision
from chalicelib.services.consume.settle import Nack
from chalicelib.services.core.counters import DELIVERED, FAILED
from chalicelib.services.push.settlements import Settlements
from chalicelib.store.cursors import Cursors
from chalicelib.store.layout import FRAGMENTS
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.desk import ALREADY, Desk, attempts
from tests.support.push import PushDesk
from tests.support.stages import Stage
from tests.support.troubled import Troubled

STEPS = Retry(9, (10, 100, 1000), jitter=0.0)


def record(desk: Desk, group: Group, consumer_uid: str = "", offset: int = 0) -> Record | None:
    return desk.stage.adapters.records.get(cursor_key(desk.topic, group, 0, consumer_uid), offset)


def timer(desk: Desk) -> Timer:
    timers = desk.stage.adapters.timers
    (timer,) = [t for fragment in range(FRAGMENTS) for t in timers.first_due(fragment, 10**14, 9).timers]
    return timer


def test_a_broadcasts_records_and_retries_are_their_consumers(stage: Stage) -> None:
    desk = Desk.at(stage, retention_days=5, retry=STEPS)
    group = desk.group(mode="broadcast")
    one = desk.consumer(group, "one")
    desk.produce(make.draft())
    desk.nack(group, desk.receive(group, consumer=one), Nack(delay_ms=None))
    retry, retry_record = timer(desk), record(desk, group, one.uid)
    assert (retry.group_uid, retry.consumer_uid, retry.keep_days) == (group.uid, one.uid, 5)
    assert retry_record
    assert (retry_record.consumer_uid, retry_record.next_ms) == (one.uid, retry.due_ms)
    stage.clock.advance(10 * SECOND_MS)
    desk.nack(group, desk.receive(group, consumer=one), Nack(dead_letter=True, reason="no"))
    dead_record = record(desk, group, one.uid)
    assert dead_record
    assert (dead_record.consumer_uid, dead_record.attempts, dead_record.last_error) == (one.uid, 2, "no")
    desk.produce(make.draft(expires_ms=stage.clock.now_ms()))
    assert desk.receive(group, consumer=one) == []
    buried_record = record(desk, group, one.uid, offset=1)
    assert buried_record
    assert (buried_record.consumer_uid, buried_record.reason) == (one.uid, "EXPIRED")


def test_a_stale_ack_in_a_broadcast_does_not_pass_for_a_repeat_of_another_consumers(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group(mode="broadcast")
    one, two = desk.consumer(group, "one"), desk.consumer(group, "two")
    desk.produce(make.draft())
    receive = partial(desk.deps.receiver.receive, desk.topic, group)
    first, second = receive(one, 1, 0, 120, "0123abcd"), receive(two, 1, 0, 30, "0123abcd")
    assert first[0].receipt.token == second[0].receipt.token
    stage.clock.advance(30 * SECOND_MS)
    assert len(desk.receive(group, consumer=two)) == 1
    assert desk.ack(group, first) == [None]
    assert desk.ack(group, second) == ["RECEIPT_STALE"]


@pytest.mark.parametrize("mode", ["queue", "serial"])
def test_a_receive_settles_and_claims_in_one_write_of_their_cursor(stage: Stage, mode: str) -> None:
    desk = Desk.at(stage)
    group = desk.group(mode=mode)
    messages = desk.produce(*(make.draft(ordering_key="k") for _ in range(3)))
    held = desk.receive(group, 1)
    for n in (1, 2, None):
        epoch = desk.cursor(group).epoch
        acks = desk.deps.settler.acks(desk.topic, group, desk.receipts(held))
        held = desk.deps.receiver.receive(desk.topic, group, None, 1, 0, 30, acks=acks)
        assert [each.message.id for each in held] == ([messages[n].id] if n else [])
        assert acks.answers == [None]
        assert desk.cursor(group).epoch == epoch + bool(n), (
            "the last acknowledges alone: there is nothing to claim"
        )
        assert not desk.cursor(group).leases or n
    assert [desk.outcomes(each.id) for each in messages] == [["SUCCESS"]] * 3


@pytest.mark.parametrize(
    ("is_push", "of_topic", "of_message", "took_s", "wait_s"),
    [
        *((is_push, "failure", None, 4, 10) for is_push in (False, True)),
        *((is_push, "start", None, 4, 6) for is_push in (False, True)),
        *((is_push, "failure", "start", 4, 6) for is_push in (False, True)),
        (False, "start", None, 25, 0),
        (True, "start", None, 25, 75),  # after a second attempt at once
    ],
)
def test_a_step_counts_from_the_failure_or_from_the_start_of_the_attempt(
    stage: Stage, is_push: bool, of_topic: str, of_message: str | None, took_s: int, wait_s: int
) -> None:
    desk = PushDesk.at(stage, retry=replace(STEPS, steps_from=of_topic))
    group = desk.group()

    def fails_late(_: PushBatch) -> CallResult:
        stage.clock.advance(took_s * SECOND_MS)
        return CallResult(Verdict.FAILED)

    if is_push:
        desk.subscriber(group, "one", behaviour=fails_late)
    desk.produce(make.draft(steps_from=of_message))
    if is_push:
        desk.push()
    else:
        messages = desk.receive(group)
        stage.clock.advance(took_s * SECOND_MS)
        desk.nack(group, messages, Nack(delay_ms=None))
    assert timer(desk).due_ms == stage.clock.now_ms() + wait_s * SECOND_MS


def test_a_messages_own_number_of_attempts_goes_before_its_groups(stage: Stage) -> None:
    desk = Desk.at(stage, retry=STEPS)
    group = desk.group()
    desk.produce(make.draft(max_attempts=2))
    for _ in range(2):
        (claimed_message,) = desk.receive(group)
        assert claimed_message.receipt.last_attempt == 2
        desk.nack(group, [claimed_message])
    dead_record = record(desk, group)
    assert dead_record
    assert (dead_record.status, dead_record.attempts) == ("DEAD", 2)


@pytest.mark.parametrize("mode", ["queue", "serial"])
@pytest.mark.parametrize(
    "how",
    [
        pytest.param(Nack(delay_ms=HOUR_MS), id="the caller's delay"),
        pytest.param(Nack(delay_ms=None), id="the ladder's"),
        pytest.param(Nack(delay_ms=HOUR_MS, untried=True), id="untried"),
    ],
)
def test_a_message_that_waits_for_a_retry_expires_at_its_time(stage: Stage, mode: str, how: Nack) -> None:
    desk = Desk.at(stage, mode=mode, retry=Retry(9, (3600,), jitter=0.0))
    group = desk.group()
    desk.produce(make.draft(expires_ms=stage.clock.now_ms() + 60 * SECOND_MS))
    assert desk.nack(group, desk.receive(group), how) == [None]
    for wait_ms, letters in ((59 * SECOND_MS, []), (SECOND_MS, ["EXPIRED"])):
        stage.clock.advance(wait_ms)
        desk.deps.mover.run_once()
        assert desk.receive(group) == []
        page = stage.adapters.records.dead(desk.topic, group, None, 9)
        assert [letter.reason for _, letter in page] == letters


def test_i9_a_clock_that_is_behind_gives_no_attempt_to_what_a_mover_saw_expire(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(make.draft(expires_ms=stage.clock.now_ms() + 60 * SECOND_MS))
    desk.nack(group, desk.receive(group), Nack(delay_ms=HOUR_MS))
    stage.clock.advance(60 * SECOND_MS)
    desk.deps.mover.run_once()
    stage.clock.advance(-30 * SECOND_MS)
    assert desk.receive(group) == []
    assert [letter.reason for _, letter in stage.adapters.records.dead(desk.topic, group, None, 9)] == [
        "EXPIRED"
    ]


def timers(desk: Desk) -> list[Timer]:
    port = desk.stage.adapters.timers
    return [timer for n in range(FRAGMENTS) for timer in port.behind(n, "", 500)]


def outcomes(desk: Desk, group: Group, offset: int) -> list[tuple[int, str]]:
    """Of each attempt at a message that is noted: its number and how it ended."""
    rows = desk.stage.adapters.traces.rows_covering(cursor_key(desk.topic, group, 0), offset, consistent=True)
    entries = [entry for row in rows for entry in row.entries]
    return [(entry.attempt, entry.outcome) for entry in entries if entry.offset == offset]


def told(desk: Desk) -> tuple[int, int]:
    """How many deliveries its process counts as done, and as failed, since it was last asked."""
    counts = desk.deps.counters.take()
    return counts.get(DELIVERED, 0), counts.get(FAILED, 0)


def test_what_takes_several_writes_is_settled_as_if_it_took_one(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(100))
    claimed = desk.receive(group, 100)
    desk.deps.counters.take()
    desk.inbox.asked.clear()
    in_any_order = [*claimed[50:], *claimed[:50]]
    assert desk.nack(group, [*in_any_order, claimed[7]], Nack(delay_ms=5 * SECOND_MS)) == [None] * 100 + [
        ALREADY
    ]
    assert sorted(
        timer.draft.origin.offset for timer in timers(desk) if timer.draft and timer.draft.origin
    ) == [*range(100)]
    named = [hint.get("fragments", []) for hint in desk.inbox.hints()]
    assert {f for each in named for f in each} >= {timer.fragment for timer in timers(desk)} or [] in named
    assert told(desk) == (0, 100)
    assert {offset: outcomes(desk, group, offset) for offset in range(100)} == {
        offset: [(1, "RETRY")] for offset in range(100)
    }
    assert desk.nack(group, claimed, Nack(delay_ms=5 * SECOND_MS)) == [ALREADY] * 100
    stage.clock.advance(5 * SECOND_MS)
    assert attempts(desk.receive(group, 100)) == dict.fromkeys(range(100), 2)


@pytest.mark.parametrize(
    ("how", "each"),
    [
        pytest.param(None, (1, 0), id="ack"),
        pytest.param(Nack(), (0, 1), id="at once"),
        pytest.param(Nack(delay_ms=5 * SECOND_MS), (0, 1), id="later"),
        pytest.param(Nack(dead_letter=True), (0, 1), id="dead"),
    ],
)
def test_what_others_settle_of_a_lease_meanwhile_makes_the_rest_of_it_no_stale(
    stage: Stage, how: Nack | None, each: tuple[int, int]
) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(110))
    lease = desk.receive(group, 110)
    claimed, others = lease[:100], lease[100:]

    def settles_first(name: str, *_: Any) -> bool:
        if name == "write" and others:
            assert desk.ack(group, [others.pop()]) == [None]
        return False

    cursors: Any = Troubled(stage.adapters.cursors, settles_first)
    other = Desk(stage, Deps(replace(stage.another(), cursors=cursors)), desk.topic)
    assert (other.nack(group, claimed, how) if how else other.ack(group, claimed)) == [None] * 100
    assert told(other) == tuple(100 * n for n in each)
    assert {len(outcomes(desk, group, offset)) for offset in range(100)} == {1}


def test_what_was_settled_in_a_retry_lane_is_known_by_its_own_offset_when_it_is_repeated(
    stage: Stage,
) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(4))
    messages = desk.receive(group)
    for at, delay_s in ((3, 1), (2, 2), (0, 3)):
        desk.nack(group, [messages[at]], Nack(delay_ms=delay_s * SECOND_MS))
    stage.clock.advance(3 * SECOND_MS)
    again = [each for _ in range(3) for each in desk.receive(group, 1)]
    assert {each.receipt.offset: each.receipt.entry for each in again} == {3: 0, 2: 1, 0: 2}
    assert desk.ack(group, again) == [None] * 3
    assert desk.ack(group, again) == [ALREADY] * 3
    assert desk.nack(group, again) == ["RECEIPT_STALE"] * 3


def test_who_lost_the_race_for_a_message_notes_and_counts_no_attempt(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(3))
    messages = desk.receive(group)

    def settles_first(name: str, *_: Any) -> bool:
        if name == "write" and not outcomes(desk, group, 0):
            assert desk.ack(group, messages[:2]) == [None] * 2
        return False

    cursors: Any = Troubled(stage.adapters.cursors, settles_first)
    other = Desk(stage, Deps(replace(stage.another(), cursors=cursors)), desk.topic)
    assert other.nack(group, messages) == ["RECEIPT_STALE"] * 2 + [None]
    assert [outcomes(desk, group, offset) for offset in range(3)] == [
        [(1, "SUCCESS")],
        [(1, "SUCCESS")],
        [(1, "RETRY")],
    ]
    assert told(other) == (0, 1)


@pytest.mark.parametrize("deed", ["ack", "extend"])
def test_a_cursor_that_cannot_be_read_now_keeps_no_other_from_being_settled(stage: Stage, deed: str) -> None:
    refused_keys: list[CursorKey] = []
    desk = with_cursors(stage, lambda method, key, *_: method == "get" and key in refused_keys, shards=2)
    group = desk.group()
    desk.produce(*(make.draft(n, ordering_key=str(n)) for n in range(8)))
    claimed = desk.receive(group, 8)
    stage.clock.advance(2 * SECOND_MS)  # what is remembered of cursors is too old now
    refused_keys.append(cursor_key(desk.topic, group, 0))
    answers = desk.ack(group, claimed) if deed == "ack" else desk.extend(group, claimed, 300)
    assert {each.message.shard for each in claimed} == {0, 1}
    for each, answer in zip(claimed, answers, strict=True):
        assert answer == ("UNAVAILABLE" if each.message.shard == 0 else None)


def test_outcomes_of_a_run_outlast_a_cursor_that_cannot_be_read_now(stage: Stage) -> None:
    is_away = False
    desk = with_cursors(stage, lambda *_: is_away)
    group = desk.group()
    desk.produce(*make.drafts(4))
    claimed = desk.receive(group, 4)
    stage.clock.advance(2 * SECOND_MS)  # what is remembered of cursors is too old now
    settlements = Settlements(desk.deps.settler)
    is_away = True
    settlements.settle(
        desk.topic, group, {d.receipt: SettleDecision(Disposition.SUCCESS) for d in claimed[2:]}
    )
    settlements.give_back(desk.topic, group, [d.receipt for d in claimed[:2]])
    assert settlements.are_owed
    is_away = False
    settlements.settle(desk.topic, group, settlements.take_owed())
    status = desk.deps.surveyor.exact_group(desk.topic, group)
    assert (status.account.success, status.in_flight) == (2, 0)
    assert {d.attempt for d in desk.receive(group, 4)} == {1}  # of what was given back


def with_cursors(stage: Stage, refuses: Callable[..., bool], **settings: Any) -> PushDesk:
    """A desk on cursors whose calls may be refused."""
    adapters = replace(stage.another(), cursors=cast(Cursors, Troubled(stage.adapters.cursors, refuses)))
    return PushDesk.at(replace(stage, another=lambda: adapters), **settings)
