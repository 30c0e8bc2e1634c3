"""Movers in a world of their own: processes that store and cancel timers, wake-ups that come late, a schedule
that misses a tick, functions that end at their limit, and others between any two calls of the store. In every case, due
timers go in time. Where movers die, too, the schedule's next run moves what they leave."""

from __future__ import annotations

import queue
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.adapters import Nobody
from chalicelib.domain.segment import ShardKey
from chalicelib.domain.timer import Timer
from chalicelib.domain.times import SECOND_MS
from chalicelib.scheduler import mover as mover_module
from chalicelib.scheduler.mover import Mover
from chalicelib.store.timers import Timers
from chalicelib.wiring import Deps
from tests.simulation import virtual
from tests.simulation.processes import Clock
from tests.support import factories as make
from tests.support.clock import START_MS, SeededRandom
from tests.support.embedded import embedded_dynamo
from tests.support.stages import embedded_stage

LATEST_MS = 1_500  # beside what an invocation takes to start: a second of the queue's, and a few calls
GAP_MS = 140_000  # of the schedule, where it misses a tick
MINUTES = 3
SLOWEST_MS = 60
HOME = make.shard()


@pytest.fixture(autouse=True)
def _virtual_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = SimpleNamespace(SimpleQueue=lambda: virtual.Queue(virtual.current()), Empty=queue.Empty)
    monkeypatch.setattr(mover_module, "queue", waits)


class Slow:
    """A port each call of which takes its time."""

    def __init__(self, port: Any, world: World) -> None:
        self._port = port
        self._world = world

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)

        def call(*args: Any, **settings: Any) -> Any:
            self._world.pass_time(SLOWEST_MS)
            answer = method(*args, **settings)
            self._world.pass_time(SLOWEST_MS)
            return answer

        return call


@dataclass(eq=False)
class Run:
    """One invocation's process."""

    alive: bool = True


class World(Nobody):
    """Everything that happens to the timers of one stage."""

    def __init__(self, seed: int, deadly: bool = False) -> None:
        """`deadly`: movers die at any moment, in the first MINUTES."""
        self.random = random.Random(seed)
        self.fate = random.Random(f"fate {seed}") if deadly else None
        self.deaths = 0
        self.scheduler = virtual.Scheduler()
        self.clock = Clock(self.scheduler, 0)
        self.store = Timers(embedded_dynamo())
        self.timers = Slow(self.store, self)
        self.function_seconds = self.random.choice((40, 120, 900))
        self.start_ms = self.random.choice((50, 3_000))  # longest, of an invocation
        self.late: dict[str, int] = {}
        self.owed: dict[str, int] = {}
        self._random = SeededRandom(seed)
        stage = embedded_stage()
        adapters = replace(stage.another(), clock=self.clock, invoker=self)
        self.wakers = [Deps(adapters).waker for _ in range(self.random.choice((1, 3)))]

    def pass_time(self, longest_ms: float) -> None:
        self.scheduler.wait(self.random.uniform(0, longest_ms))

    def wake_mover(self, hint: Mapping[str, Any], delay_seconds: int) -> None:
        self.pass_time(SLOWEST_MS)
        after_ms = delay_seconds * SECOND_MS + self.random.uniform(5, self.start_ms)
        self.scheduler.spawn(lambda: self.move(hint), after_ms=after_ms)

    def move(self, hint: Mapping[str, Any] | None = None) -> None:
        """One invocation of the mover, by its schedule or for a wake-up."""
        waker = self.random.choice(self.wakers)
        threads = lambda: virtual.Pool(self.scheduler, 64)  # noqa: E731
        mover = Mover(
            timers=cast(Any, self.timers),
            append=self.append,
            wake=nothing,
            check=nothing,
            wake_at=waker.wake_at,
            tell=nothing,
            clock=self.clock,
            random=self._random,
            threads=threads,
        )
        run, task = Run(), self.scheduler.current()
        if self.fate and task and self.fate.random() < 0.3:
            task.home = run
            life_ms = self.fate.uniform(0, self.fate.choice((100, 300, 1_000)))
            self.scheduler.spawn(lambda: self.kill(run), after_ms=life_ms)
        ends = self.scheduler.now + self.function_seconds * SECOND_MS
        has_time = lambda: ends - self.scheduler.now > 5 * SECOND_MS  # noqa: E731
        if hint is None:
            mover.tick(has_time)
        else:
            mover.run_once(has_time, hint.get("fragments"), hint["until_ms"])

    def kill(self, run: Run) -> None:
        """A run dies where it is."""
        if self.scheduler.now <= START_MS + MINUTES * 60 * SECOND_MS:
            self.deaths += 1
            run.alive = False
            self.scheduler.kill_all_of(run)

    def append(self, shard: ShardKey, keep_days: int | float, timers: Sequence[Timer]) -> int:
        self.pass_time(SLOWEST_MS)
        self.store.drop(timers)
        for timer in timers:
            if self.owed.pop(timer.id, None) is not None:
                self.late[timer.id] = self.clock.now_ms() - timer.due_ms
        self.pass_time(SLOWEST_MS)
        return len(timers)

    def schedule(self) -> None:
        """Each minute, ten seconds early or late, and now and then not at all."""
        start_ms, is_missing = self.scheduler.now, False
        for minute in range(1, MINUTES + 3):
            at = start_ms + (60 * minute + self.random.uniform(-10, 10)) * SECOND_MS
            self.scheduler.wait(at - self.scheduler.now)
            is_missing = not is_missing and self.random.random() < 0.2
            if not is_missing:
                self.scheduler.spawn(self.move, after_ms=self.random.uniform(5, self.start_ms))

    def use(self) -> None:
        """A client files timers, one or some, soon or later, and takes many of them away again."""
        mine: list[Timer] = []
        end = self.scheduler.now + MINUTES * 60 * SECOND_MS
        pace_ms = self.random.choice((1_000, 5_000, 30_000))
        regret, longest_s = self.random.choice((0.0, 0.7)), self.random.choice((3, 70, 200))
        while self.scheduler.now < end:
            self.pass_time(pace_ms)
            if mine and self.random.random() < regret:
                timer = mine.pop()
                if self.timers.cancel(timer, 0):
                    self.owed.pop(timer.id, None)
                continue
            now_ms = self.clock.now_ms()
            due_ms = now_ms + self.random.randint(1_000, longest_s * SECOND_MS)
            timers = [
                Timer(due_ms, self._random.id(12), make.timer().kind, HOME, make.draft(), stored_ms=now_ms)
                for _ in range(self.random.choice((1, 1, 3)))
            ]
            self.owed |= {timer.id: due_ms for timer in timers}
            self.timers.store(timers)
            self.random.choice(self.wakers).wake_movers(timers)
            mine += timers

    def run(self) -> None:
        self.scheduler.spawn(self.move)
        self.scheduler.spawn(self.schedule)
        for _ in range(self.random.choice((1, 2, 4))):
            self.scheduler.spawn(self.use)
        self.scheduler.run(self.scheduler.now + (MINUTES + 4) * 60 * SECOND_MS)


def nothing(*_: object) -> None:
    return


@settings(max_examples=4)
@given(seed=st.integers(0, 2**32))
def test_where_movers_die_what_is_due_goes_with_the_schedules_next_run(seed: int) -> None:
    world = World(seed, deadly=True)
    world.run()
    assert world.owed == {}
    assert max(world.late.values(), default=0) <= GAP_MS + world.start_ms + LATEST_MS


@settings(max_examples=6)
@given(seed=st.integers(0, 2**32))
def test_whatever_is_filed_and_cancelled_what_is_due_goes_in_time(seed: int) -> None:
    world = World(seed)
    world.run()
    assert world.owed == {}
    assert max(world.late.values(), default=0) <= world.start_ms + LATEST_MS
