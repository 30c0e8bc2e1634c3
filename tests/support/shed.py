"""A mover with timers of its own, which records what it put into logs, and its wake-ups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from chalicelib.domain.segment import ShardKey
from chalicelib.domain.timer import Timer
from chalicelib.scheduler.mover import Mover
from chalicelib.store.timers import Timers
from tests.support.clock import Inline, ManualClock, SeededRandom
from tests.support.embedded import embedded_dynamo


@dataclass
class Shed:
    """A mover, what it has put into logs, and for which times and fragments it sent wake-ups."""

    clock: ManualClock = field(default_factory=ManualClock)
    timers: Timers = field(default_factory=lambda: Timers(embedded_dynamo()))
    moved: list[Timer] = field(default_factory=list)
    woken: list[tuple[int, Sequence[int]]] = field(default_factory=list)
    loads: list[tuple[int | float, list[str]]] = field(default_factory=list)
    """What went together, and for how many days."""
    told: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 0
    """What each append takes."""

    def __post_init__(self) -> None:
        self.mover = self.mover_of(self.timers)

    def mover_of(self, timers: Any, threads: Callable[[], Executor] = Inline) -> Mover:
        """A mover on other timers, or with other threads."""
        return Mover(
            timers=timers,
            append=self.append,
            wake=self.wake,
            check=lambda _: None,
            wake_at=self.wake_at,
            tell=self.tell,
            clock=self.clock,
            random=SeededRandom(),
            threads=threads,
        )

    def wake_at(self, due_timers: Iterable[tuple[int, Sequence[int]]]) -> None:
        self.woken += due_timers

    def wake(self, due: Sequence[Timer]) -> None:
        pass

    def tell(self, where: str, error: BaseException) -> None:
        self.told.append((where, str(error)))

    def append(self, shard: ShardKey, keep_days: int | float, due: Sequence[Timer]) -> int:
        self.clock.advance(round(self.seconds * 1000))
        self.timers.drop(due)
        self.moved += due
        self.loads.append((keep_days, [timer.id for timer in due]))
        return len(due)
