"""Counts add up: for each reader every message of a log is in one state; and waiting messages are counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from chalicelib.domain.account import Account
from chalicelib.domain.message import Message
from chalicelib.domain.times import SECOND_MS
from chalicelib.domain.transaction import TransactionState
from chalicelib.services.consume.settle import Nack
from chalicelib.services.inspect.fate import Place
from chalicelib.services.inspect.survey import TopicSurvey
from chalicelib.services.produce.delayed import DelayedMessage
from chalicelib.services.produce.transactions import Checks
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import Hasty
from tests.support.desk import Desk
from tests.support.stages import Stage

BURY = Nack(dead_letter=True)


def stats(desk: Desk) -> TopicSurvey:
    return desk.deps.surveyor.exact_topic(desk.topic)


def messages(desk: Desk) -> Iterator[Message]:
    for row in desk.rows():
        for offset in range(row.first, row.end):
            message = row.message(0, offset)
            assert message
            yield message


def places(desk: Desk, message: Message) -> tuple[str, ...]:
    """Where a message is for the group, by its fate."""
    fate = desk.deps.fates.of(desk.topic, message).owed["billing"]
    return fate.places if fate.adds_up else ("nowhere",)


def account(desk: Desk) -> Account:
    return stats(desk).groups[0].account


def test_a_page_of_topics_or_of_groups_ends_where_counting_takes_long(empty_stage: Stage) -> None:
    desk = Desk.at(empty_stage)
    slow = Deps(replace(empty_stage.adapters, clock=Hasty()))
    assert 1 < len(slow.surveyor.exact_topics([desk.topic] * 50)) < 50
    assert len(slow.surveyor.exact_topics([desk.topic])) == 1
    assert slow.surveyor.exact_topics([]) == []
    group = desk.group()
    assert 1 < len(slow.surveyor.exact_groups(desk.topic, [group] * 50)) < 50
    assert len(slow.surveyor.exact_groups(desk.topic, [group])) == 1
    assert slow.surveyor.exact_groups(desk.topic, []) == []


def test_what_a_clock_stored_that_is_ahead_is_no_age_below_nothing(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(make.draft("x"))
    stage.clock.advance(-10 * SECOND_MS)
    assert desk.deps.surveyor.exact_group(desk.topic, group).oldest_age_seconds == 0


def test_what_waits_before_the_log_is_counted(empty_stage: Stage) -> None:
    desk, other = Desk.at(empty_stage), Desk.at(empty_stage)
    due_ms = empty_stage.clock.now_ms() + 60 * SECOND_MS
    first, *_ = desk.produce(*(make.draft(n, due_ms=due_ms + n) for n in range(3)))
    other.produce(make.draft("x", due_ms=due_ms))
    prepare = desk.deps.transactor.prepare
    halves = [prepare(desk.topic, make.draft(n), Checks(), delay_from_commit=False)[0] for n in range(3)]
    counts = stats(desk)
    assert (counts.accepted, counts.delayed.number, counts.prepared.number) == (0, 3, 3)
    assert counts.delayed.whole
    assert counts.prepared.whole
    delayed_message = desk.deps.lookup.find(desk.topic, first.id)
    assert isinstance(delayed_message, DelayedMessage)
    desk.deps.delayed.cancel(desk.topic, delayed_message)
    desk.deps.transactor.decide(halves[0], TransactionState.COMMITTED)
    desk.deps.transactor.decide(halves[1], TransactionState.ROLLED_BACK)
    counts = stats(desk)
    assert (counts.accepted, counts.delayed.number, counts.prepared.number) == (1, 2, 1)
    assert [s and s.delayed.number for s in desk.deps.surveyor.exact_topics([other.topic, desk.topic])] == [
        1,
        2,
    ]
    empty_stage.clock.advance(61 * SECOND_MS)
    desk.deps.mover.run_once()
    assert (stats(desk).accepted, stats(desk).delayed.number) == (3, 0)


def test_each_way_out_of_a_group_is_counted_as_what_it_is(stage: Stage) -> None:
    desk = Desk.at(stage)
    desk.produce(*make.drafts(2))
    group = desk.group(begin="latest", tags=("a",))
    results = desk.produce(*(make.draft(n, tag="a" if n % 2 else "b") for n in range(10)))
    cancelled_message = desk.deps.lookup.message(desk.topic, results[9].id)
    desk.deps.amender.cancel(desk.topic, cancelled_message)
    assert account(desk) == Account(new=10, skipped=2)
    messages = desk.receive(group)
    assert account(desk).running == len(messages) == 4
    desk.ack(group, messages[:1])
    desk.nack(group, messages[1:2], BURY)
    desk.nack(group, messages[2:3], Nack(delay_ms=60_000))
    desk.nack(group, messages[3:])
    assert account(desk) == Account(retrying=2, success=1, dead=1, skipped=2 + 6)
    (letter,) = desk.deps.letter_lookup.letters(desk.topic, group, messages[1].message.id)
    desk.deps.dead_letters.discard(desk.topic, group, letter)
    assert account(desk).dead == 1, "it was never taken: its delivery stays DEAD"
    stage.clock.advance(61 * SECOND_MS)
    again = desk.receive(group)
    assert account(desk) == Account(running=2, success=1, dead=1, skipped=8)
    desk.ack(group, again)
    assert account(desk) == Account(success=3, dead=1, skipped=8)
    assert stats(desk).groups[0].backlog == 0
    desk.seek(group, 2)
    assert account(desk) == Account(new=10, skipped=2)


def test_a_dead_delivery_from_before_a_seek_is_told_of_as_long_as_its_letter_is_there(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(make.draft())
    desk.nack(group, desk.receive(group), BURY)
    desk.seek(group, 0)
    (message,) = messages(desk)
    [letter] = desk.deps.letter_lookup.find(desk.topic, group, message.id)

    def older() -> tuple[str, ...]:
        fate = desk.deps.fates.of_group(desk.topic, group, message)
        assert fate
        assert fate.places == (Place.LOG,)
        return fate.older

    assert older() == ("DEAD",)
    desk.deps.dead_letters.discard(desk.topic, group, letter)
    assert older() == ()
