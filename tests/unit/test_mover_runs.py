"""Movers of one process share the work as those of several do: by leases."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.domain.segment import ShardKey
from chalicelib.domain.timer import Timer
from chalicelib.scheduler.mover import Mover, Report
from chalicelib.store.memory import MemoryTables, MemoryTimers
from tests.support import factories as make
from tests.support.clock import START_MS, ManualClock, SeededChance


def test_a_run_leaves_alone_what_another_run_of_its_process_holds() -> None:
    clock, chance, timers = ManualClock(), SeededChance(), MemoryTimers(MemoryTables())
    due = make.timer(START_MS - 1)
    timers.file([due])
    meanwhile: list[Report] = []

    def append(shard: ShardKey, keep_days: int, moved: Sequence[Timer]) -> int:
        meanwhile.append(mover.run_once())
        timers.drop(moved)
        return len(moved)

    mover = Mover(timers, append, lambda _: None, lambda _: None, clock, lambda: chance.id(8))
    assert mover.run_once().moved == 1
    assert [(report.moved, report.ticks) for report in meanwhile] == [(0, 0)]
