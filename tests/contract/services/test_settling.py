"""What a settlement leaves behind: receipts, records, timers and counts, each by itself."""

from __future__ import annotations

import pytest

from chalicelib.domain.ladder import Retry
from chalicelib.domain.limits import FRAGMENTS
from chalicelib.domain.record import Record
from chalicelib.domain.timer import Timer
from chalicelib.domain.times import SECOND_MS
from chalicelib.domain.topic import Group, cursor_key
from chalicelib.services.consume.settle import Nack
from chalicelib.services.core.counters import DELIVERED, FAILED
from tests.support import factories as make
from tests.support.desk import Desk
from tests.support.stages import Stage, embedded_stage

STEPS = Retry(9, (10, 100, 1000), jitter=0.0)


@pytest.fixture
def stage() -> Stage:
    """The rules are the service's; that both stores keep rows alike is judged in tests/contract/ports."""
    return embedded_stage()


def record(desk: Desk, group: Group, consumer_uid: str = "", offset: int = 0) -> Record | None:
    return desk.stage.adapters.records.get(cursor_key(desk.topic, group, 0, consumer_uid), offset)


def timer(desk: Desk) -> Timer:
    timers = desk.stage.adapters.timers
    (timer,) = [t for fragment in range(FRAGMENTS) for t in timers.first_due(fragment, 10**14, 9).timers]
    return timer


def test_a_receipt_of_another_group_is_none_of_this_one(stage: Stage) -> None:
    desk = Desk.at(stage)
    ours, theirs = desk.group("ours"), desk.group("theirs")
    desk.produce(make.draft())
    messages, others = desk.receive(ours), desk.receive(theirs)
    for settle in (desk.ack, desk.nack, lambda group, each: desk.extend(group, each, 60)):
        assert settle(ours, others) == ["RECEIPT_INVALID"]
    assert desk.ack(ours, messages) == [None]
    assert desk.ack(theirs, others) == [None]


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


@pytest.mark.parametrize("delay_ms", [0, 5 * SECOND_MS])
def test_why_it_was_given_back_is_kept(stage: Stage, delay_ms: int) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(make.draft())
    desk.nack(group, desk.receive(group), Nack(delay_ms, reason="busy"))
    retry_record = record(desk, group)
    assert retry_record
    assert (retry_record.status, retry_record.last_error, retry_record.attempts) == ("RETRYING", "busy", 1)
    assert retry_record.expires_s == desk.topic.expires_s(stage.clock.now_ms() + delay_ms), (
        "as long as it is owed"
    )


def test_each_way_of_settling_is_counted_as_what_it_is(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(6))
    desk.deps.counters.take()
    messages = desk.receive(group)
    desk.ack(group, messages[:3])
    desk.nack(group, messages[3:4])
    desk.nack(group, messages[4:5], Nack(delay_ms=9000))
    desk.nack(group, messages[5:], Nack(dead_letter=True))
    desk.ack(group, messages[:1])
    counts = desk.deps.counters.take()
    assert (counts[DELIVERED], counts[FAILED]) == (3, 3)


def test_a_redriven_message_climbs_its_ladder_anew(stage: Stage) -> None:
    desk = Desk.at(stage, retry=STEPS)
    group = desk.group()
    (result,) = desk.produce(make.draft())
    waits = []
    for how in (None, None, "bury", None, None):
        (claimed_message,) = desk.receive(group)
        if how:
            desk.nack(group, [claimed_message], Nack(dead_letter=True))
            desk.deps.dead_letters.redrive(
                desk.topic, group, desk.deps.letter_lookup.find(desk.topic, group, result.id)
            )
            continue
        desk.nack(group, [claimed_message], Nack(delay_ms=None))
        waits.append((timer(desk).due_ms - stage.clock.now_ms()) // SECOND_MS)
        stage.clock.advance(waits[-1] * SECOND_MS)
    assert waits == [10, 100, 10, 100]


def test_a_groups_own_ladder_goes_before_its_topics(stage: Stage) -> None:
    desk = Desk.at(stage, retry=STEPS)
    group = desk.group(retry=Retry(2, (7,), jitter=0.0))
    desk.produce(make.draft())
    desk.nack(group, desk.receive(group), Nack(delay_ms=None))
    assert timer(desk).due_ms == stage.clock.now_ms() + 7 * SECOND_MS
    stage.clock.advance(7 * SECOND_MS)
    (claimed_message,) = desk.receive(group)
    assert claimed_message.receipt.last_attempt == 2
    desk.nack(group, [claimed_message], Nack(delay_ms=None))
    dead_record = record(desk, group)
    assert dead_record
    assert (dead_record.status, dead_record.reason) == ("DEAD", "ATTEMPTS_EXHAUSTED")


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


def test_a_message_is_wanted_until_the_millisecond_of_its_expiry(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(make.draft(expires_ms=stage.clock.now_ms() + 2 * SECOND_MS))
    stage.clock.advance(2 * SECOND_MS - 1)
    desk.nack(group, desk.receive(group))
    stage.clock.advance(1)
    assert desk.receive(group) == []
    dead_record = record(desk, group)
    assert dead_record
    assert (dead_record.reason, dead_record.attempts) == ("EXPIRED", 1)


def test_a_lease_that_lapses_on_the_last_attempt_ends_in_a_letter_that_counts_it_once(stage: Stage) -> None:
    desk = Desk.at(stage, retry=Retry(1, (10,), jitter=0.0))
    group = desk.group()
    desk.produce(make.draft())
    assert [claimed_message.attempt for claimed_message in desk.receive(group, lease=10)] == [1]
    stage.clock.advance(10 * SECOND_MS)
    assert desk.receive(group) == []
    dead_record = record(desk, group)
    assert dead_record
    assert (dead_record.reason, dead_record.attempts, dead_record.attempts_before_redrive) == (
        "ATTEMPTS_EXHAUSTED",
        1,
        0,
    )
