"""Delayed messages on AWS, in virtual time: the product's wake-ups and movers, SQS's and Lambda's documented rules.

SQS delays a message by whole seconds; Lambda's pollers take up to ten visible messages at once and start no more runs
than the mapping allows; an execution environment serves one run at a time, and one that has been idle for minutes is
gone. A transaction that meets a row that is gone is billed, and writes nothing.
"""

from __future__ import annotations

import heapq
import itertools
import json
import queue
import random
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from types import SimpleNamespace
from typing import Any, cast

from chalicelib.domain.segment import ShardKey
from chalicelib.domain.timer import FirstTimers, Timer
from chalicelib.scheduler import mover as mover_module
from chalicelib.scheduler.mover import Mover
from chalicelib.services.core.mover_wakes import MoverWakes, read_hints
from chalicelib.store.layout import fragment_of
from chalicelib.store.timers import first_of
from infra.wakes import AT_ONCE, BATCH
from tests.simulation import virtual
from tests.simulation.processes import Clock
from tests.support import factories as make
from tests.support.clock import START_MS, SeededRandom

_GB, _GB_SECOND = 0.5, 1.33334e-5  # arm64
_REQUEST, _START, _WRITE, _READ = 0.40e-6, 0.20e-6, 0.625e-6, 0.125e-6
_IDLE_MS = 300_000
_COLD_MS = 900
_CPU_MS, _ROW_MS = 12, 0.3
_TRANSACTION = 98
_ROW_BYTES = 60  # in a segment, compressed


class _AtRest:
    alive = True


_AT_REST = _AtRest()


class Rows:
    """The table `timers`, as far as a mover sees it."""

    def __init__(self, model: Model, fragments: int) -> None:
        self._model = model
        self.count = fragments
        self.of: list[list[tuple[str, Timer]]] = [[] for _ in range(fragments)]
        self.there: set[str] = set()

    def fragments(self) -> range:
        return range(self.count)

    def add(self, timer: Timer) -> int:
        """File a timer; its fragment."""
        fragment = fragment_of(timer.id, self.count)
        insort(self.of[fragment], (timer.sort_key, timer))
        self.there.add(timer.id)
        return fragment

    def first_due(
        self, fragment: int, until_ms: int, limit: int, behind: str = "", *, consistent: bool = True
    ) -> FirstTimers:
        self._model.pass_time(5, 12)
        rows = self.of[fragment]
        gone = next((n for n, row in enumerate(rows) if row[1].id in self.there), len(rows))
        del rows[:gone]
        first = bisect_left(rows, (f"{behind}!",)) if behind else 0
        due = itertools.takewhile(lambda row: row[1].due_ms <= until_ms, itertools.islice(rows, first, None))
        look = first_of((timer for _, timer in due if timer.id in self.there), limit)
        kib = ceil(max(1, len(look.timers) * 0.25) / 4)
        self._model.spend("reads", (kib if consistent else kib / 2) * _READ)
        return look


@dataclass
class Model:
    """One stage, and what happened to its delayed messages."""

    rate: float
    """Delayed messages a second."""
    processes: int
    seconds: float
    seed: int = 0
    fragments: int = 8
    loss: float = 0.0
    """How many wake-ups are lost."""
    delays_s: tuple[float, float] = (5, 65)
    late_ms: list[float] = field(default_factory=list)
    usd: dict[str, float] = field(default_factory=dict)
    most_movers: int = 0
    collisions: int = 0
    runs: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.scheduler = virtual.Scheduler()
        self.rows = Rows(self, self.fragments)
        self._clock = Clock(self.scheduler, 0)
        self._visible: list[tuple[float, int, str]] = []
        self._numbers = itertools.count()
        self._movers = self._of_queue = 0
        self._idle: list[tuple[float, MoverWakes]] = []
        self._senders = [MoverWakes() for _ in range(self.processes)]
        self._timer = make.timer()

    def pass_time(self, least_ms: float, most_ms: float) -> None:
        self.scheduler.wait(self.random.uniform(least_ms, most_ms))

    def spend(self, what: str, usd: float) -> None:
        """Not what the schedule's runs cost: they are there without messages, too."""
        task = self.scheduler.current()
        if task is None or task.home is not _AT_REST:
            self.usd[what] = self.usd.get(what, 0.0) + usd

    def play(self) -> Model:
        """Let messages come for so long, and wait for the last."""
        self.scheduler.spawn(self._produce)
        self.scheduler.spawn(self._schedule, _AT_REST)
        self.scheduler.run(START_MS + 1000 * (self.seconds + self.delays_s[1] + 90))
        assert not self.rows.there
        return self

    @property
    def p99_ms(self) -> float:
        return sorted(self.late_ms)[ceil(0.99 * len(self.late_ms)) - 1]

    @property
    def usd_a_million(self) -> float:
        """What delays cost beside the messages: these cost a write each without a delay, too."""
        return (sum(self.usd.values()) / len(self.late_ms) - _WRITE) * 1e6

    def _produce(self) -> None:
        end_ms = self.scheduler.now + 1000 * self.seconds
        while True:
            self.scheduler.wait(1000 * self.random.expovariate(self.rate))
            if self.scheduler.now >= end_ms and self.late_ms:
                return
            self.scheduler.spawn(self._delay)

    def _delay(self) -> None:
        """One message is filed, and its wake-up sent."""
        sender, now_ms = self.random.choice(self._senders), self._clock.now_ms()
        due_ms = now_ms + round(1000 * self.random.uniform(*self.delays_s))
        timer = replace(self._timer, due_ms=due_ms, id=f"u{next(self._numbers)}", stored_ms=now_ms)
        self.pass_time(5, 15)
        self.spend("writes", _WRITE)
        self._send(sender, [(due_ms, [self.rows.add(timer)])])

    def _send(self, sender: MoverWakes, due_timers: Sequence[tuple[int, Sequence[int]]]) -> None:
        for wake in sender.add(due_timers, self._clock.now_ms()):
            self.spend("queue", _REQUEST)
            self.pass_time(5, 15)
            if self.random.random() >= self.loss:
                at_ms = self.scheduler.now + 1000 * wake.delay_seconds
                heapq.heappush(self._visible, (at_ms, next(self._numbers), json.dumps(wake.hint())))
                self.scheduler.spawn(self._poll, after_ms=at_ms - self.scheduler.now)

    def _poll(self) -> None:
        """A poller has room: it takes what is visible."""
        while self._of_queue < AT_ONCE and self._visible and self._visible[0][0] <= self.scheduler.now:
            bodies: list[str] = []
            while len(bodies) < BATCH and self._visible and self._visible[0][0] <= self.scheduler.now:
                bodies.append(heapq.heappop(self._visible)[2])
            self._of_queue += 1
            self.spend("queue", 2 * _REQUEST)
            self.scheduler.spawn(partial(self._woken, bodies))

    def _woken(self, bodies: Sequence[str]) -> None:
        self.pass_time(15, 60)
        self._run(bodies)
        self._of_queue -= 1
        self._poll()

    def _schedule(self) -> None:
        while True:
            self._run(None)
            self.pass_time(55_000, 65_000)

    def _run(self, bodies: Sequence[str] | None) -> None:
        """One invocation of the mover."""
        self._movers += 1
        self.runs += bodies is not None
        self.most_movers = max(self.most_movers, self._movers)
        begun = self.scheduler.now
        wakes = self._environment()
        mover = Mover(
            timers=cast(Any, self.rows),
            append=self._append,
            wake=_nothing,
            check=_nothing,
            wake_at=lambda due: self._send(wakes, list(due)),
            tell=_raise,
            clock=self._clock,
            random=SeededRandom(next(self._numbers)),
            threads=lambda: virtual.Pool(self.scheduler, 64),
        )
        self.scheduler.wait(_CPU_MS)
        if bodies is None:
            mover.tick()
        else:
            hints = read_hints(bodies, self.rows.fragments(), self._clock.now_ms())
            assert not hints.dropped
            mover.run_once(fragments=hints.fragments, until_ms=hints.until_ms, wakes=len(bodies))
        self._idle.append((self.scheduler.now, wakes))
        self._movers -= 1
        if bodies is not None:  # the schedule's runs are there without messages, too
            seconds = ceil(self.scheduler.now - begun) / 1000
            self.spend("runs", _START + seconds * _GB * _GB_SECOND)

    def _environment(self) -> MoverWakes:
        """An execution environment: the one that was used last, if it is still there; else a cold one."""
        if self._idle:
            used_ms, wakes = self._idle.pop()
            if self.scheduler.now - used_ms < _IDLE_MS:
                return wakes
        self.scheduler.wait(_COLD_MS)
        return MoverWakes()

    def _append(self, shard: ShardKey, keep_days: int | float, timers: Sequence[Timer]) -> int:
        """Transactions, each of up to 98 rows; what is gone is left out of the next try."""
        moved, left = 0, list(timers)
        while left:
            chunk = left[:_TRANSACTION]
            self.scheduler.wait(_ROW_MS * len(chunk))
            self.pass_time(12, 25)
            kib = max(1, ceil(len(chunk) * _ROW_BYTES / 1024))
            self.spend("writes", 2 * (kib + len(chunk)) * _WRITE)
            there = [timer for timer in chunk if timer.id in self.rows.there]
            if len(there) < len(chunk):
                self.collisions += 1
                left = there + left[len(chunk) :]
                continue
            self.rows.there -= {timer.id for timer in chunk}
            self.late_ms += [self.scheduler.now - timer.due_ms for timer in chunk]
            assert min(self.scheduler.now - timer.due_ms for timer in chunk) >= 0
            moved, left = moved + len(chunk), left[len(chunk) :]
        return moved


def _nothing(*_: object) -> None:
    return


def _raise(where: str, error: BaseException) -> None:
    raise error


def play(rate: float, processes: int, **settings: Any) -> Model:
    """Enough messages for a percentile."""
    seconds = max(1_000 / rate, 20.0 if rate < 1_000 else 5.0)
    return Model(rate, processes, **{"seconds": seconds, **settings}).play()


def main() -> None:
    """Print the rows of the table in docs/cost.md."""
    waits = SimpleNamespace(SimpleQueue=lambda: virtual.Queue(virtual.current()), Empty=queue.Empty)
    setattr(mover_module, "queue", waits)  # noqa: B010 - as the test does
    for rate, processes in [(0.01, 1), *((rate, 100) for rate in (1, 10, 100, 1_000))]:
        model = play(rate, processes, fragments=32 if rate >= 1_000 else 8)
        late, usd = model.p99_ms / 1000, model.usd_a_million
        print(f"| {rate:,} | {processes} | {model.most_movers} | {late:.1f} s | {usd:.2f} |", flush=True)


if __name__ == "__main__":
    main()
