"""Movers in a world of their own: processes that file and cancel timers, invocations that come late, a schedule with
jitter that misses a tick, functions that end at their limit, and others between any two calls of the store. Whatever
they do, what is due goes in time."""

from __future__ import annotations

import queue
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.adapters import Nobody
from chalicelib.domain.segment import ShardKey
from chalicelib.domain.timer import Timer
from chalicelib.domain.times import SECOND_MS
from chalicelib.scheduler import beside
from chalicelib.scheduler.mover import Mover
from chalicelib.scheduler.mover_run import Ways
from chalicelib.store.memory import MemoryTables, MemoryTimers
from chalicelib.wiring import Deps
from tests.simulation import virtual
from tests.simulation.processes import Clock
from tests.support import factories as make
from tests.support.clock import SeededRandom
from tests.support.stages import memory_stage

LATEST_MS = 1_500  # beside what an invocation takes to start: a tick, and a few calls
MINUTES = 3
SLOWEST_MS = 60
HOME = make.shard()


@pytest.fixture(autouse=True)
def _virtual_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = SimpleNamespace(SimpleQueue=lambda: virtual.Queue(virtual.current()), Empty=queue.Empty)
    monkeypatch.setattr(beside, "queue", waits)


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


class World(Nobody):
    """Everything that happens to the timers of one stage."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.scheduler = virtual.Scheduler()
        self.clock = Clock(self.scheduler, 0)
        self.timers = Slow(MemoryTimers(MemoryTables()), self)
        self.function_seconds = self.random.choice((40, 120, 900))
        self.start_ms = self.random.choice((50, 3_000))  # longest, of an invocation
        self.late: dict[str, int] = {}
        self.owed: dict[str, int] = {}
        self._random = SeededRandom(seed)
        stage = memory_stage()
        adapters = replace(stage.another(), clock=self.clock, invoker=self)
        self.wakers = [Deps(adapters).waker for _ in range(self.random.choice((1, 3)))]

    def pass_time(self, longest_ms: float) -> None:
        self.scheduler.wait(self.random.uniform(0, longest_ms))

    def invoke(self, function: str, event: Mapping[str, Any]) -> None:
        self.pass_time(SLOWEST_MS)
        fragments = event["detail"]["fragments"]
        self.scheduler.spawn(lambda: self.move(fragments), after_ms=self.random.uniform(5, self.start_ms))

    def move(self, fragments: Iterable[int] | None = None) -> None:
        """One invocation of the mover."""
        ways = Ways(
            append=self.append,
            wake=nothing,
            check=nothing,
            set_aside=nothing,
            hand_over=self.hand_over,
            tell=nothing,
        )
        threads = lambda: virtual.Pool(self.scheduler, 64)  # noqa: E731
        mover = Mover(
            timers=self.timers,
            ways=ways,
            clock=self.clock,
            new_owner=lambda: self._random.id(8),
            threads=threads,
        )
        ends = self.scheduler.now + self.function_seconds * SECOND_MS
        mover.run_once(lambda: ends - self.scheduler.now > 5 * SECOND_MS, fragments)

    def hand_over(self, fragments: Sequence[int]) -> None:
        self.invoke("mover", {"detail": {"fragments": list(fragments)}})

    def append(self, shard: ShardKey, keep_days: int, timers: Sequence[Timer]) -> int:
        for timer in timers:
            if self.owed.pop(timer.id, None) is not None:
                self.late[timer.id] = self.clock.now_ms() - timer.due_ms
        self.timers.drop(timers)
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
            due_ms = self.clock.now_ms() + self.random.randint(1, longest_s) * SECOND_MS
            timers = [
                Timer(due_ms, self._random.id(12), make.timer().kind, HOME)
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


@settings(max_examples=12)
@given(seed=st.integers(0, 2**32))
def test_whatever_is_filed_and_cancelled_what_is_due_goes_in_time(seed: int) -> None:
    world = World(seed)
    world.run()
    assert world.owed == {}
    assert max(world.late.values(), default=0) <= world.start_ms + LATEST_MS
