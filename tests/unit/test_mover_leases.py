"""Movers share the fragments by leases, and one that falls behind gives half of its own to another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, cast

import pytest

from chalicelib.domain.limits import FRAGMENTS
from chalicelib.domain.segment import ShardKey
from chalicelib.domain.timer import Timer
from chalicelib.scheduler.mover import Mover
from chalicelib.scheduler.mover_run import MoveReport
from chalicelib.store.timers import Timers
from tests.support import factories as make
from tests.support.clock import START_MS, Inline, ManualClock
from tests.support.embedded import embedded_dynamo
from tests.support.shed import Shed
from tests.support.troubled import Troubled

HOME = make.shard()


def test_a_run_leaves_alone_what_another_run_of_its_process_holds() -> None:
    meanwhile: list[MoveReport] = []

    class Reentrant(Shed):
        def append(self, shard: ShardKey, keep_days: int | float, due: Sequence[Timer]) -> int:
            began_ms = self.clock.now_ms()
            meanwhile.append(self.mover.run_once(lambda: self.clock.now_ms() < began_ms + 5_000))
            return super().append(shard, keep_days, due)

    shed = Reentrant()
    shed.timers.store([make.timer(START_MS - 1)])
    assert shed.mover.run_once().moved == 1
    assert [(report.moved, report.ticks) for report in meanwhile] == [(0, 0)]


def test_a_mover_that_falls_behind_gives_every_other_fragment_to_another() -> None:
    shed = Shed(seconds=2)
    shed.timers.store([make.timer(START_MS - 1, id=f"t{n}", shard=HOME) for n in range(4_000)])
    mine = shed.mover.run_once()
    assert shed.given[0] == list(range(1, FRAGMENTS, 2))
    for fragments in shed.given:  # and what is given away meanwhile
        shed.mover.run_once(fragments=fragments)
    assert 0 < mine.moved < 4_000
    assert len({timer.id for timer in shed.moved}) == len(shed.moved) == 4_000


def test_a_mover_that_keeps_up_gives_nothing_away() -> None:
    shed = Shed(seconds=0.2)
    shed.timers.store([make.timer(START_MS - 1, id=f"t{n}", shard=HOME) for n in range(1_000)])
    assert shed.mover.run_once().moved == 1_000
    assert shed.given == []


def test_a_mover_whose_time_is_up_leaves_its_fragments_to_another() -> None:
    shed = Shed()
    soon = make.timer(START_MS + 30_000)
    shed.timers.store([soon])
    assert not shed.mover.run_once(has_time=lambda: False).finished
    assert shed.given == [[soon.fragment]]
    assert shed.mover.run_once(fragments=shed.given[0]).moved == 1


def test_a_run_that_is_over_gives_back_what_it_is_granted_late() -> None:
    class Late(Inline):
        """Threads that stand still until they are let go on."""

        def submit(self, work: Callable[..., Any], /, *args: Any, **settings: Any) -> Future[Any]:
            tasks.append(partial(work, *args, **settings))
            return Future()

    tasks: list[Callable[[], object]] = []
    shed = Shed()
    shed.timers.store([make.timer(START_MS + 30_000, fragment=3)])
    run = shed.run("late", Late())
    run.stay([3], lambda: False)
    (take,) = tasks
    take()
    assert shed.given == [[3]]
    assert shed.timers.acquire_lease(3, "another", START_MS, START_MS + 1) is None


def test_a_fragment_is_its_movers_for_three_renewals() -> None:
    class Slow(Shed):
        def append(self, shard: ShardKey, keep_days: int | float, due: Sequence[Timer]) -> int:
            self.clock.advance(14_000)
            other = Mover(
                timers=cast(Any, self.timers),
                ways=self.ways,
                clock=self.clock,
                new_owner=lambda: "other",
                threads=Inline,
            )
            other.run_once(lambda: False)
            return super().append(shard, keep_days, due)

    shed = Slow()
    shed.timers.store([make.timer(START_MS - 1)])
    assert shed.mover.run_once().moved == 1
    assert shed.given == [], "nobody else had it"


def test_a_fragment_is_its_movers_as_long_as_it_waits_there_and_free_at_once_when_it_leaves() -> None:
    class Visited(ManualClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            other.run_once(lambda: False)

    shed = Shed(clock=Visited())
    other = Mover(
        timers=cast(Any, shed.timers),
        ways=shed.ways,
        clock=shed.clock,
        new_owner=lambda: "other",
        threads=Inline,
    )
    shed.timers.store([make.timer(START_MS + 25_000, fragment=3)])
    assert shed.mover.run_once().moved == 1
    assert shed.given == [], "nobody else had it"
    assert shed.timers.acquire_lease(3, "next", shed.clock.now_ms(), shed.clock.now_ms() + 1) is None


@pytest.mark.parametrize("woken_for", [None, [3]], ids=["by schedule", "woken"])
@pytest.mark.parametrize("due_in_ms", [1_000, 14_000, 25_000])
@pytest.mark.parametrize("lease_ms", [500, 9_000, 15_000])
def test_what_a_dead_mover_held_goes_when_its_lease_ends(
    lease_ms: int, due_in_ms: int, woken_for: list[int] | None
) -> None:
    shed = Shed()
    timer = make.timer(START_MS + due_in_ms, fragment=3)
    shed.timers.store([timer])
    assert shed.timers.acquire_lease(3, "dead", START_MS, START_MS + lease_ms) is None
    report = shed.mover.run_once(fragments=woken_for)
    assert shed.moved == [timer]
    assert report.late_ms <= max(0, lease_ms - due_in_ms) + 100


def test_what_a_mover_held_whose_clock_was_an_hour_ahead_does_not_wait_for_an_hour() -> None:
    shed = Shed()
    timer = make.timer(START_MS + 1_000, fragment=3)
    shed.timers.store([timer])
    then_ms = START_MS + 3_600_000
    assert shed.timers.acquire_lease(3, "dead", then_ms, then_ms + 15_000) is None
    assert shed.mover.run_once().late_ms <= 100
    assert shed.moved == [timer]


@pytest.mark.parametrize("woken_for", [None, [3]], ids=["by schedule", "woken"])
def test_a_run_leaves_a_fragment_whose_holder_renews_its_lease_to_it(woken_for: list[int] | None) -> None:
    class Renewing(ManualClock):
        """The holder renews its lease each five seconds."""

        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if self.at_ms >= renewed_ms[-1] + 5_000:
                renewed_ms.append(self.at_ms)
                shed.timers.acquire_lease(3, "holder", self.at_ms, self.at_ms + 15_000)

    class Counting(Timers):
        def acquire_lease(self, fragment: int, owner: str, now_ms: int, until_ms: int) -> int | None:
            owners.append(owner)
            return super().acquire_lease(fragment, owner, now_ms, until_ms)

    owners: list[str] = []
    renewed_ms = [START_MS]
    shed = Shed(clock=Renewing(), timers=Counting(embedded_dynamo()))
    shed.timers.store([make.timer(START_MS + 25_000, fragment=3)])
    shed.timers.acquire_lease(3, "holder", START_MS, START_MS + 15_000)
    report = shed.mover.run_once(lambda: shed.clock.now_ms() < START_MS + 60_000, woken_for)
    assert (report.ticks, report.finished) == (0, True)
    assert shed.clock.at_ms <= START_MS + 7_000
    tries = len(owners) - owners.count("holder")
    assert tries == (2 if woken_for is None else 4), "each failed one costs a write unit, and the wait none"


def test_a_lease_that_comes_when_its_run_has_left_is_let_go_and_handed_over() -> None:
    """A run started meanwhile may have met it."""
    shed, goes_on = Shed(), threading.Event()
    timer = make.timer(START_MS - 1)
    shed.timers.store([timer])

    def is_late(name: str, *_: object) -> bool:
        return name == "acquire_lease" and not goes_on.wait(20)

    shed.timers, timers = cast(Timers, Troubled(shed.timers, is_late)), shed.timers
    with ThreadPoolExecutor(1) as threads:
        shed.run("late", threads).stay([timer.fragment], lambda: False)
        goes_on.set()
    assert shed.given == [[timer.fragment]]
    assert timers.acquire_lease(timer.fragment, "next", START_MS, START_MS + 1) is None
