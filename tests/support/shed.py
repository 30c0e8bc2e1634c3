"""A mover with timers of its own, which records what it put into logs and what it gave away."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, cast

from chalicelib.domain.segment import ShardKey
from chalicelib.domain.timer import Timer
from chalicelib.scheduler.mover import Mover
from chalicelib.scheduler.mover_run import MoverRun, Ways
from chalicelib.store.timers import Timers
from tests.support.clock import Inline, ManualClock, SeededRandom
from tests.support.embedded import embedded_dynamo


@dataclass
class Shed:
    """A mover, what it has put into logs, and which fragments it gave away."""

    clock: ManualClock = field(default_factory=ManualClock)
    timers: Timers = field(default_factory=lambda: Timers(embedded_dynamo()))
    moved: list[Timer] = field(default_factory=list)
    given: list[Sequence[int]] = field(default_factory=list)
    loads: list[tuple[int | float, list[str]]] = field(default_factory=list)
    """What went together, and for how many days."""
    told: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 0
    """What each append takes."""

    def __post_init__(self) -> None:
        chance = SeededRandom()
        nothing = lambda *_: None  # noqa: E731
        self.ways = Ways(
            append=self.append,
            wake=self.wake,
            check=nothing,
            hand_over=self.given.append,
            tell=self.tell,
        )
        self.mover = Mover(
            timers=cast(Any, self.timers),
            ways=self.ways,
            clock=self.clock,
            new_owner=lambda: chance.id(8),
            threads=Inline,
        )

    def run(self, owner: str, threads: Executor) -> MoverRun:
        """One run, which waits for nothing that its threads are late with."""
        return MoverRun(
            timers=cast(Any, self.timers),
            ways=self.ways,
            clock=self.clock,
            owner=owner,
            threads=threads,
            patience_seconds=0.001,
        )

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
