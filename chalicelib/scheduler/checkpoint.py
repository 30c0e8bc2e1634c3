"""The function `checkpoint`: stores the tails of quiet shards before their last rows expire. It is also the daily
check: in a month it looks once at each shard for what does not fit together.

Without it, an empty log would begin again at offset 0 below its groups' cursors, and its messages would not be
delivered.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..domain.errors import Unavailable
from ..domain.segment import ShardKey, Tail
from ..domain.times import HOUR_MS, HOUR_SECONDS
from ..domain.topic import Group, Topic, lane_of
from ..ports.world import Clock
from ..store import Control, Log, Rounds
from .walk import HasTime, Report, Trouble, Walk, as_many_as_time_allows, owners

_JOB = "checkpoint"
# the job runs every six hours: so that four visits may be missing; no row lives shorter than 48
_AHEAD_S = 30 * HOUR_SECONDS
_EVERY_MS = 6 * HOUR_MS
_TURNS = 4 * 30  # in so many runs each shard is looked at once

# Look for what does not fit together in one shard with this tail, for these owners of cursors; what was found. The
# number grows from run to run.
Look = Callable[[Topic, Sequence[tuple[Group, str]], int, Tail, int], Iterable[Any]]
LookAtTimers = Callable[[int], Iterable[Any]]  # the same among some timers


@dataclass(slots=True)
class CheckpointReport(Report):
    """What one run did."""

    shards: int = 0
    checkpoints: int = 0
    findings: list[Any] = field(default_factory=list)

    def as_dict(self) -> dict[str, int | bool]:
        """The counts as JSON, for the function's log line."""
        return Report.as_dict(self) | {"findings": len(self.findings)}


@dataclass(kw_only=True, frozen=True, slots=True)
class Checkpointer:
    """Visits all topics. It writes only for shards whose last row may soon be gone, and costs about two read units
    per shard."""

    control: Control
    log: Log
    rounds: Rounds
    clock: Clock
    look: Look
    look_at_timers: LookAtTimers

    def run_once(self, has_time: HasTime = lambda: True) -> CheckpointReport:
        """Visit the topics, as many as there is time for; the next run goes on there."""
        report = CheckpointReport()
        run = self.clock.now_ms() // _EVERY_MS

        def visit(topic: Topic, has_time: HasTime, turn: int) -> None:
            refusals: list[Unavailable] = []
            # the retry lanes, too: their rows expire as well
            whose = list(owners(self.control, topic, refusals))
            lanes = [lane_of(topic, *owner) for owner in whose]
            shards = [(log, shard) for log in [topic, *lanes] for shard in log.shard_numbers]
            for log, shard in as_many_as_time_allows(shards, turn, has_time):
                report.shards += 1
                key = log.shard_key(shard)
                try:
                    tail = self.log.tail(key)
                    report.checkpoints += self._shard(key, tail)
                    if log is topic and (zlib.crc32(str(key).encode()) + run) % _TURNS == 0:
                        report.findings += self.look(topic, whose, shard, tail, run // _TURNS)
                except Unavailable as error:
                    refusals.append(error)
            for refusal in refusals:
                raise refusal

        walk = Walk(job=_JOB, control=self.control, rounds=self.rounds, clock=self.clock)
        report.stretch = walk.run(visit, has_time)
        try:
            report.findings += self.look_at_timers(run)
        except Unavailable as error:
            report.stretch.troubles.append(Trouble.of("", error))
        return report

    def _shard(self, shard: ShardKey, tail: Tail) -> bool:
        rows = self.log.read_back(shard, tail.offset, 1) if tail.offset >= 0 else []
        if not rows or rows[0].end - 1 < tail.offset:  # it is written down
            return False
        if rows[0].expires_s > self.clock.now_ms() // 1000 + _AHEAD_S:
            return False
        self.log.checkpoint(shard, tail)
        return True
