"""What a claim keeps of what others do meanwhile, and when there will be something to claim."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from chalicelib.domain.times import SECOND_MS
from chalicelib.domain.topic import cursor_key
from chalicelib.services.consume.settle import Nack
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.desk import Desk, attempts
from tests.support.stages import Stage, memory_stage
from tests.support.troubled import Troubled


def test_what_is_settled_between_a_claims_read_and_its_write_stays_settled(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(3))
    held = [desk.receive(group, 1)]

    def settles_first(name: str, *_: Any) -> bool:
        if name == "write" and held:
            assert desk.ack(group, held.pop()) == [None]
        return False

    cursors: Any = Troubled(stage.adapters.cursors, settles_first)
    other = Desk(stage, Deps(replace(stage.another(), cursors=cursors)), desk.topic)
    assert attempts(other.receive(group)) == {1: 1, 2: 1}
    assert not held
    stage.clock.advance(30 * SECOND_MS)
    assert attempts(desk.receive(group)) == {1: 2, 2: 2}


def test_a_cursor_has_something_when_a_message_is_due_or_a_lease_may_end() -> None:
    stage = memory_stage()
    desk = Desk.at(stage, mode="serial")
    group = desk.group()
    desk.produce(*(make.draft(ordering_key=key) for key in "abcd"))
    desk.receive(group, 1, lease=20)
    desk.receive(group, 1, lease=600)
    for seconds in (5, 9):
        desk.nack(group, desk.receive(group, 1), Nack(delay_ms=seconds * SECOND_MS))
    key, now_ms = cursor_key(desk.topic, group, 0), stage.clock.now_ms()
    for lease_seconds, dues in ((20, [5, 9, 20]), (19, [5, 9]), (600, [5, 9, 20, 600])):
        found = desk.deps.claimer.dues_ms(key, lease_seconds)
        assert sorted((due_ms - now_ms) // SECOND_MS for due_ms in found) == dues
