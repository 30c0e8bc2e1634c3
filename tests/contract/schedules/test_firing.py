"""Scheduled jobs come twice at once, over one another, late by hours, or not at all: nothing is done twice, or
forgotten. (Movers: services/test_delayed.)"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from chalicelib.domain.mark import Mark
from chalicelib.domain.times import DAY_MS, HOUR_MS
from chalicelib.domain.topic import Group
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import Inline
from tests.support.desk import Desk
from tests.support.push import PushDesk
from tests.support.stages import Stage

T = TypeVar("T")
TIMES = 4
SLOT_MS = 6 * HOUR_MS  # the checkpointer and the expirer come by every six hours


def at_once(desk: Desk, job: Callable[[Deps], T]) -> list[T]:
    """Several processes run a job beside one another."""
    a = desk.deps.adapters
    ways_out: dict[str, Any] = {"sender": a.sender, "invoker": a.invoker, "threads": Inline}
    others = [Deps(replace(desk.stage.another(), **ways_out)) for _ in range(TIMES)]
    with ThreadPoolExecutor(TIMES) as pool:
        return list(pool.map(job, others))


def forgotten(stage: Stage) -> tuple[PushDesk, str]:
    """A message whose wake-up was lost; its id."""
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.subscriber(group, "one")
    (result,) = desk.produce(make.draft())
    desk.inbox.asked.clear()
    return desk, result.id


def test_sweepers_at_once_start_deliveries_that_find_the_message_once(empty_stage: Stage) -> None:
    desk, message_id = forgotten(empty_stage)
    assert [report.woken for report in at_once(desk, lambda deps: deps.sweeper.run_once())] == [1] * TIMES
    desk.run()
    assert desk.subscribers.numbers() == {message_id: [1]}


def epoch(desk: Desk, group: Group) -> int:
    assignment = desk.stage.adapters.control.assignment(desk.topic, group)
    return assignment.epoch if assignment else 0


def test_assigners_at_once_give_a_crashed_consumers_shards_away_once(empty_stage: Stage) -> None:
    desk = Desk.at(empty_stage, shards=4)
    group = desk.group()
    for name in ("a", "b"):
        desk.consumer(group, name)
    empty_stage.clock.advance(HOUR_MS)  # both are silent for long
    empty_stage.adapters.marks.mark(Mark(desk.topic.name, empty_stage.clock.now_ms()))
    before = epoch(desk, group)
    reports = at_once(desk, lambda deps: deps.assigner.run_once())
    assert epoch(desk, group) == before + 1
    assert sum(report.assigned for report in reports) >= 1
    assert [report.assigned for report in at_once(desk, lambda deps: deps.assigner.run_once())] == [0] * TIMES


def test_without_any_assigner_whoever_receives_gets_the_shards_of_the_silent(empty_stage: Stage) -> None:
    desk = Desk.at(empty_stage, shards=4)
    group = desk.group()
    desk.consumer(group, "gone")
    here = desk.consumer(group, "here")
    desk.produce(*(make.draft(n, shard=n) for n in range(4)))
    empty_stage.clock.advance(9 * HOUR_MS)
    shards = {d.message.shard for _ in range(4) for d in desk.receive(group, consumer=here)}
    assert shards == {0, 1, 2, 3}


def owed(stage: Stage, count: int) -> tuple[Desk, Group]:
    """A group that owes messages whose retention is over."""
    desk = Desk.at(stage, retention_days=1)
    group = desk.group()
    desk.produce(*make.drafts(count))
    stage.clock.advance(DAY_MS + 1)
    return desk, group


def letters(desk: Desk, group: Group) -> list[int]:
    return sorted(x.offset for _, x in desk.deps.adapters.records.dead(desk.topic, group, None, 100))


def test_expirers_at_once_bury_each_message_once(empty_stage: Stage) -> None:
    desk, group = owed(empty_stage, 12)
    reports = at_once(desk, lambda deps: deps.expirer.run_once())
    assert sum(report.buried for report in reports) == 12
    assert letters(desk, group) == list(range(12))
    status = desk.deps.surveyor.exact_group(desk.topic, group)
    assert (status.backlog, status.dead) == (0, 12)


def quiet(stage: Stage) -> tuple[Desk, Group]:
    """A topic of two days (and one of grace) to which nothing has come for nearly two: its checkpoint's time."""
    desk = Desk.at(stage, retention_days=2)
    group = desk.group()
    desk.produce(*make.drafts(3))
    assert desk.drain(group) == [0, 1, 2]
    stage.clock.advance(DAY_MS + 3 * SLOT_MS)
    return desk, group


def test_a_checkpoint_that_comes_beside_an_append_does_not_bring_the_tail_back(empty_stage: Stage) -> None:
    desk, group = quiet(empty_stage)
    for _ in range(2):
        at_once(
            desk,
            lambda deps: (deps.checkpointer.run_once(), deps.producer.produce(desk.topic, [make.draft()])),
        )
        empty_stage.clock.advance(SLOT_MS)
    assert desk.drain(group) == list(range(3, 3 + 2 * TIMES))
