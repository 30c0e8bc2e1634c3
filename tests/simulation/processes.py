"""Processes over one store: each with its own clock, caches and faults. Every port call is a moment at which others
may come between, the process may die, or its answer may be lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from chalicelib.adapters import Adapters
from chalicelib.domain.append import Stored
from chalicelib.domain.cursor import CLOSED, Cursor
from chalicelib.domain.cursor_write import Change, RefusalReason, WriteRefused
from chalicelib.domain.errors import unavailable
from chalicelib.domain.segment import Rows, Segment, ShardKey
from chalicelib.domain.topic import CursorKey
from chalicelib.wiring import Deps
from tests.simulation.virtual import Pool, Scheduler, Task
from tests.support.clock import SeededRandom
from tests.support.faults import Death

PORTS = (
    "log",
    "cursors",
    "records",
    "timers",
    "transactions",
    "traces",
    "keys",
    "token_buckets",
    "rounds",
    "marks",
    "control",
    "blobs",
)
LOCAL = {"pack"}  # arithmetic, no call
LAG_MS = 1_500  # how old a stale read may be
KEPT = {
    "control.topic",
    "control.group",
    "control.consumers",
    "control.assignment",
    "cursors.get",
    "cursors.write",
}
"""Calls whose answers a process keeps for a while."""
_MOST_CALLS_MEANWHILE = 40


@dataclass(frozen=True, slots=True)
class Faults:
    """How often something goes wrong at a call: shares of 1."""

    die_before: float = 0.0
    die_after: float = 0.0
    fail_before: float = 0.0
    fail_after: float = 0.0
    stale: float = 0.0
    pause: float = 0.0
    longest_pause_ms: float = 0.0
    slow: float = 0.0  # answers that are long on their way
    longest_answer_ms: float = 0.0


class Clock:
    """ports.Clock of one process: virtual time and its skew."""

    def __init__(self, of: Scheduler, skew_ms: int) -> None:
        self._of = of
        self.skew_ms = skew_ms
        self.latest_ms = 0  # ever shown: who reads the clock may have acted by it before it was set back

    def now_ms(self) -> int:
        now_ms = int(self._of.now) + self.skew_ms
        self.latest_ms = max(self.latest_ms, now_ms)
        return now_ms

    def monotonic_ms(self) -> int:
        return int(self._of.now)

    def sleep(self, seconds: float) -> None:
        self._of.wait(seconds * 1000)


class Past:
    """What a read that is not consistent may still show: the store as it was a moment ago."""

    def __init__(self, of: Scheduler) -> None:
        self._of = of
        self._cursors: dict[CursorKey, deque[tuple[float, Cursor | None]]] = {}
        self._rows: dict[tuple[ShardKey, int], float] = {}

    def note(self, method: str, args: tuple[Any, ...], answer: Any) -> None:
        """A write has been applied."""
        if (method == "cursors.write" and not isinstance(answer, WriteRefused)) or method == "cursors.create":
            self._versions(args[0]).append((self._of.now, answer))
        elif method == "cursors.close":
            for key in args[0]:
                self._versions(key).append((self._of.now, CLOSED))
        elif method == "log.put" and isinstance(answer, Stored):
            self._rows[args[0], args[1].first] = self._of.now

    def _versions(self, key: CursorKey) -> deque[tuple[float, Cursor | None]]:
        return self._cursors.setdefault(key, deque([(0.0, None)], 20))

    def cursor(self, key: CursorKey, lag_ms: float) -> Cursor | None:
        versions = self._versions(key)
        return next((c for at, c in reversed(versions) if at <= self._of.now - lag_ms), versions[0][1])

    def owned(self, group_uid: str, consumer_uid: str, lag_ms: float) -> dict[str, Cursor]:
        return {
            str(key.shard): cursor
            for key in self._cursors
            if (key.group_uid, key.consumer_uid) == (group_uid, consumer_uid)
            and (cursor := self.cursor(key, lag_ms))
        }

    def rows(self, shard: ShardKey, rows: list[Segment], lag_ms: float) -> list[Segment]:
        return [row for row in rows if self._rows.get((shard, row.first), 0.0) <= self._of.now - lag_ms]


@dataclass(eq=False)
class SlowAnswer:
    """A task that waits for its answer until other threads of its process have made so many calls, or for a while."""

    task: Task
    calls: int


@dataclass(eq=False)
class Process:
    """One process. What it calls is delayed, and goes wrong, as `faults` say."""

    name: str
    world: Any
    clock: Clock
    faults: Faults
    threads: int = 256
    alive: bool = True
    deps: Deps = field(init=False)
    notes: Any = None  # what its deliveries did

    def __post_init__(self) -> None:
        a: Adapters = self.world.adapters
        ports: dict[str, Any] = {name: Port(name, getattr(a, name), self) for name in PORTS}
        chance = SeededRandom(f"{self.world.seed}/{self.name}")
        adapters = replace(
            a,
            **ports,
            clock=self.clock,
            random=chance,
            invoker=Port("invoker", self.world.wakes, self),
            sender=lambda: self.world.subscribers.of(self),
            threads=lambda: Pool(self.world.scheduler, self.threads),
        )
        self.deps = Deps(adapters)
        # of its own: who answers slowly changes nothing of what is drawn else
        self._answers = Random(f"answers {self.world.seed}/{self.name}")
        self._slow_answers: list[SlowAnswer] = []
        self._leases: dict[Task | None, dict[str, int]] = {}

    def replace(self, **adapters: Any) -> None:
        """Give it other adapters."""
        self.deps = Deps(replace(self.deps.adapters, **adapters))
        self.world.observe(self)

    def die(self) -> None:
        """End it: what is at work there dies where it waits."""
        if not self.alive:
            return
        self.alive = False
        self.world.scheduler.kill_all_of(self)
        self.world.died(self)

    def retire(self) -> None:
        """End the process while it is idle."""
        self.alive = False
        self.notes.ended()

    @contextmanager
    def at_work(self) -> Iterator[Deps]:
        """The task lives and dies with the process for a while."""
        task = self.world.scheduler.current()
        if task is None:
            yield self.deps
            return
        if not self.alive:
            raise Death("nobody there")
        before, task.home = task.home, self
        try:
            yield self.deps
        finally:
            task.home = before

    def call(
        self, method: str, work: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """One port call."""
        if not self.alive:
            raise Death(f"before {method}")
        world, faults = self.world, self.faults
        draw = world.random.random
        world.scheduler.wait(self._delay())
        chance = draw()
        for fault in ("die_before", "fail_before", "die_after", "fail_after"):
            chance -= getattr(faults, fault)
            if chance < 0:
                break
        else:
            fault = ""
        refusal = "" if faults is world.calm else world.weather.refuses(method, args, kwargs)
        world.trace(self, method, args, refusal or fault)
        if refusal:
            world.scheduler.wait(world.plan.refusal_ms)
            raise unavailable()
        if fault == "die_before":
            self.die()
            raise Death(f"before {method}")
        if fault == "fail_before":
            raise unavailable()
        if faults.stale and not kwargs.get("consistent") and draw() < faults.stale:
            stale_answer = self._stale(method, work, args, kwargs)
            if stale_answer is not NotImplemented:
                return stale_answer
        answer = work(*args, **kwargs)
        world.applied(self, method, args, answer)
        self._carry_answer(method)
        if fault == "die_after":
            self.die()
            raise Death(f"after {method}")
        if fault == "fail_after":
            if method == "cursors.write" and draw() < 0.5 and not isinstance(answer, WriteRefused):
                return WriteRefused(RefusalReason.UNKNOWN, answer)
            raise unavailable()
        return answer

    @contextmanager
    def noting_leases(self) -> Iterator[Mapping[str, int]]:
        """The leases that this task stores meanwhile, whether it hears of it or not, with the number of their
        messages."""
        task = self.world.scheduler.current()
        self._leases[task] = {}
        try:
            yield self._leases[task]
        finally:
            del self._leases[task]

    def wrote(self, change: Change) -> None:
        """A cursor was written."""
        leases = self._leases.get(self.world.scheduler.current())
        if leases is None:
            return
        for token in change.before.leases.keys() | change.after.leases.keys():
            lease = change.after.leases.get(token)
            if token in leases or token not in change.before.leases:
                leases[token] = sum(span.count for span in lease.spans) if lease else 0

    def _carry_answer(self, method: str) -> None:
        """The answer is on its way. If that is slow, other threads of this process make some calls meanwhile."""
        if not self.faults.slow:
            return
        task = self.world.scheduler.current()
        for answer in [each for each in self._slow_answers if each.task is not task]:
            answer.calls -= 1
            if not answer.calls:
                self.world.scheduler.wake(answer.task)
        if task is None or method not in KEPT or self._answers.random() >= self.faults.slow:
            return
        self.world.injected["slow answer"] += 1
        answer = SlowAnswer(task, self._answers.randint(1, _MOST_CALLS_MEANWHILE))
        self._slow_answers.append(answer)
        try:
            self.world.scheduler.wait(self._answers.uniform(0, self.faults.longest_answer_ms))
        finally:
            self._slow_answers.remove(answer)

    def _delay(self) -> float:
        random = self.world.random.random
        if self.faults.pause and random() < self.faults.pause:
            return float(random() * self.faults.longest_pause_ms)
        return 1 + float(random()) * 8

    def _stale(
        self, method: str, work: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        past, lag_ms = self.world.past, self.world.random.random() * LAG_MS
        if method == "cursors.get":
            return past.cursor(args[0], lag_ms)
        if method == "cursors.of_owner":
            return past.owned(*args, lag_ms) if len(args) == 2 else past.owned(args[0], "", lag_ms)
        if method == "log.read":
            rows = work(*args, **kwargs)
            seen_rows = past.rows(args[0], rows, lag_ms)
            return Rows(seen_rows, is_end=rows.is_end or len(seen_rows) < len(rows))
        if method == "log.read_back":
            shard, last, rows = args
            return past.rows(shard, work(shard, last, rows + 10), lag_ms)[:rows]
        return NotImplemented


class Port:
    """One of a process's ways to the store."""

    def __init__(self, name: str, port: Any, process: Process) -> None:
        self._name = name
        self._port = port
        self._process = process

    def __getattr__(self, method: str) -> Any:
        work = getattr(self._port, method)
        process, name = self._process, f"{self._name}.{method}"

        def call(*args: Any, **kwargs: Any) -> Any:
            return process.call(name, work, args, kwargs)

        method_of_port = work if method in LOCAL else call
        setattr(self, method, method_of_port)
        return method_of_port
