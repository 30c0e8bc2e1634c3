"""What a claim keeps of what others do meanwhile, and when there will be something to claim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from chalicelib.domain.cursor import Disposition
from chalicelib.domain.errors import Unavailable
from chalicelib.domain.limits import HOLE_AGE
from chalicelib.domain.segment import Allocation
from chalicelib.domain.times import SECOND_MS
from chalicelib.domain.topic import cursor_key
from chalicelib.services.consume.claimant import Claimant
from chalicelib.services.consume.decision import SettleDecision
from chalicelib.services.consume.settle import Nack
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.desk import Desk, attempts
from tests.support.stages import Stage, embedded_stage
from tests.support.troubled import Troubled


def another(desk: Desk, refuses: Callable[..., bool], *, after: bool = False) -> Desk:
    """The same topic at another process, whose calls of the cursors may be refused or have their answers lost."""
    cursors: Any = Troubled(desk.stage.adapters.cursors, refuses, after=after)
    return Desk(desk.stage, Deps(replace(desk.stage.another(), cursors=cursors)), desk.topic)


def test_what_is_settled_between_a_claims_read_and_its_write_stays_settled(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(3))
    batches = [desk.receive(group, 1)]

    def settles_first(name: str, *_: Any) -> bool:
        if name == "write" and batches:
            assert desk.ack(group, batches.pop()) == [None]
        return False

    other = another(desk, settles_first)
    assert attempts(other.receive(group)) == {1: 1, 2: 1}
    assert not batches
    stage.clock.advance(30 * SECOND_MS)
    assert attempts(desk.receive(group)) == {1: 2, 2: 2}


def test_a_cursor_has_something_when_a_message_is_due_or_a_lease_may_end() -> None:
    stage = embedded_stage()
    desk = Desk.at(stage, mode="serial")
    group = desk.group()
    desk.produce(*(make.draft(ordering_key=key) for key in "abcd"))
    desk.receive(group, 1, lease=20)
    desk.receive(group, 1, lease=600)
    for seconds in (5, 9):
        desk.nack(group, desk.receive(group, 1), Nack(delay_ms=seconds * SECOND_MS))
    key, now_ms = cursor_key(desk.topic, group, 0), stage.clock.now_ms()
    for lease_seconds, dues in ((20, [5, 9, 20]), (19, [5, 9]), (600, [5, 9, 20, 600])):
        dues_found = desk.deps.claimer.dues_ms(key, lease_seconds)
        assert sorted((due_ms - now_ms) // SECOND_MS for due_ms in dues_found) == dues


def test_a_cursor_has_something_when_the_hole_before_it_may_be_closed() -> None:
    stage = embedded_stage()
    desk = Desk.at(stage)
    group, shard = desk.group(), desk.topic.shard_key(0)
    for first in (0, 3):
        row = make.segment(first, allocation=Allocation.RESERVED, accepted_ms=stage.clock.now_ms())
        stage.adapters.log.put(shard, row, make.packed(row))
    desk.ack(group, desk.receive(group))
    (due_ms,) = desk.deps.claimer.dues_ms(cursor_key(desk.topic, group, 0), 30)
    assert due_ms - stage.clock.now_ms() == HOLE_AGE / timedelta(milliseconds=1)


@pytest.mark.parametrize("is_written", [False, True])
def test_i4_a_claim_whose_answer_was_lost_grants_what_it_holds_and_nothing_else(
    stage: Stage, is_written: bool
) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(3))
    messages = desk.receive(group, 1)
    other = another(desk, lambda name, *_: name == "write", after=is_written)
    if is_written:
        assert attempts(other.receive(group)) == {1: 1, 2: 1}
    else:
        with pytest.raises(Unavailable):
            other.receive(group)
        assert attempts(desk.receive(group)) == {1: 1, 2: 1}
    assert desk.ack(group, messages) == [None]


def test_a_lease_lasts_as_long_as_was_asked_for_whatever_was_buried_before_it() -> None:
    stage = embedded_stage()
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(200, expires_ms=stage.clock.now_ms() + SECOND_MS), make.draft())
    stage.clock.advance(SECOND_MS)

    def takes_a_second(name: str, *_: Any) -> bool:
        if name == "write":
            stage.clock.advance(SECOND_MS)
        return False

    assert attempts(another(desk, takes_a_second).receive(group, lease=30)) == {200: 1}
    (lease,) = desk.cursor(group).leases.values()
    assert lease.deadline_ms - stage.clock.now_ms() == 29 * SECOND_MS, "from before its own write"


def test_each_claim_of_what_is_given_back_turns_to_another_consumer() -> None:
    desk = Desk.at(embedded_stage())
    group = desk.group()
    desk.produce(make.draft())
    claimant, turns = Claimant(topic=desk.topic, group=group, lease_seconds=30), []
    for _ in range(4):
        turns.append(desk.deps.claimer.rotation(claimant, 0))
        messages = desk.claim(claimant, 0, 1)
        receipts = [message.receipt for message in messages]
        desk.deps.settler.settle(desk.topic, group, receipts, lambda *_: SettleDecision(Disposition.RELEASED))
    assert turns == sorted(set(turns)), "each is later than the one before"
