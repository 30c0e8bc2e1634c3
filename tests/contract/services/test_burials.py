"""What `expire` buries of one cursor, and what it leaves as it was."""

from __future__ import annotations

import pytest

from chalicelib.domain import cursor_size
from chalicelib.domain.limits import MAX_CURSOR_BYTES
from chalicelib.domain.message import Draft
from chalicelib.domain.times import SECOND_MS
from chalicelib.domain.topic import Group
from chalicelib.services.consume.claimant import Claimant
from tests.support import factories as make
from tests.support.desk import Desk, attempts, offsets
from tests.support.stages import Stage, embedded_stage


@pytest.fixture
def stage() -> Stage:
    """The rules are the service's; that both stores bury alike is judged in tests/contract/schedules."""
    return embedded_stage()


def short(stage: Stage, **settings: object) -> Draft:
    """A message that expires in a second."""
    return make.draft(expires_ms=stage.clock.now_ms() + SECOND_MS, **settings)


def bury(desk: Desk, group: Group) -> int:
    """Bury what has expired a second later; how much that was."""
    desk.stage.clock.advance(SECOND_MS)
    claimant = Claimant(topic=desk.topic, group=group, lease_seconds=30)
    return desk.deps.claimer.expire(claimant, 0, lambda: True)


def test_i1_what_nobody_owes_hides_nothing_that_is_owed(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group(tags=["owed"])
    desk.produce(*(short(stage, tag="other") for _ in range(250)))
    desk.produce(*(short(stage, tag="owed") for _ in range(60)))
    assert bury(desk, group) == 60
    assert desk.cursor(group).skipped == 250
    assert desk.receive(group) == []
    assert desk.deps.surveyor.exact_group(desk.topic, group).dead == 60


@pytest.mark.parametrize("count", [1, 127, 128, 129, 130, 150, 199, 200])
def test_i1_what_is_kept_before_and_behind_what_is_buried_is_delivered_once(stage: Stage, count: int) -> None:
    """Past a bound it stays where it is: the claim that meets it buries it."""
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(count), short(stage), *make.drafts(5))
    assert bury(desk, group) == (count <= 128)
    assert desk.drain(group) == [*range(count), *range(count + 1, count + 6)]
    assert list(desk.deps.adapters.records.dead(desk.topic, group, None, 9)) != []


def test_i7_what_is_kept_keeps_its_ordering_key(stage: Stage) -> None:
    desk = Desk.at(stage, mode="serial")
    group = desk.group()
    desk.produce(*(make.draft(ordering_key=key) for key in "aab"), short(stage, ordering_key="c"))
    assert bury(desk, group) == 1
    messages = desk.receive(group)
    assert offsets(messages) == [0, 2]
    desk.ack(group, messages)
    assert offsets(desk.receive(group)) == [1]


def test_the_kept_need_no_more_room_than_a_cursor_has(stage: Stage) -> None:
    desk = Desk.at(stage, mode="serial")
    group = desk.group()
    for key in range(600):
        desk.produce(make.draft(ordering_key=f"k{key}"), short(stage))
    assert bury(desk, group) < 600
    assert cursor_size.most_bytes(desk.cursor(group)) <= MAX_CURSOR_BYTES
    assert sorted(desk.drain(group)) == [*range(0, 1200, 2)]


def test_what_was_skipped_is_counted_without_the_dead(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group(tags=["owed"])
    desk.produce(*(make.draft(tag="other") for _ in range(3)))
    desk.produce(short(stage, tag="owed"), short(stage, tag="owed"), make.draft(tag="owed"))
    stage.clock.advance(SECOND_MS)
    assert attempts(desk.receive(group)) == {5: 1}
    assert desk.cursor(group).skipped == 3
