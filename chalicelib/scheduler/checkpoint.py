"""The function `checkpoint`: stores the tails of quiet shards before their last rows expire.

Without it, an empty log would begin again at offset 0 below its groups' cursors, and its messages would not be
delivered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..domain.errors import Unavailable
from ..domain.times import HOUR_SECONDS
from ..domain.topic import Topic, lane_of
from ..ports.world import Clock
from .walk import HasTime, Stretch, Walk, as_many_as_time_allows, owners

if TYPE_CHECKING:
    from ..store.control import Control
    from ..store.log import Log
    from ..store.marks import Rounds


_JOB = "checkpoint"
# the job runs every six hours: so that four visits may be missing; no row lives shorter than 48
_AHEAD_S = 30 * HOUR_SECONDS


@dataclass(slots=True)
class CheckpointReport:
    """What one run did."""

    shards: int = 0
    checkpoints: int = 0
    stretch: Stretch = field(default_factory=Stretch)

    def as_dict(self) -> dict[str, int | bool]:
        """The counts as JSON, for the function's log line."""
        return {"shards": self.shards, "checkpoints": self.checkpoints, **self.stretch.as_dict()}


class Checkpointer:
    """Visits all topics. It writes only for shards whose last row may soon be gone, and costs about two read units
    per shard."""

    def __init__(self, *, control: Control, log: Log, rounds: Rounds, clock: Clock) -> None:
        self._control = control
        self._walk = Walk(job=_JOB, control=control, rounds=rounds, clock=clock)
        self._log = log
        self._clock = clock

    def run_once(self, has_time: HasTime = lambda: True) -> CheckpointReport:
        """Visit the topics, as many as there is time for; the next run goes on there."""
        report = CheckpointReport()

        def visit(topic: Topic, has_time: HasTime, turn: int) -> None:
            refusals: list[Unavailable] = []
            # the retry lanes, too: their rows expire as well
            lanes = [lane_of(topic, *owner) for owner in owners(self._control, topic, refusals)]
            shards = [(log, shard) for log in [topic, *lanes] for shard in range(log.shards)]
            for log, shard in as_many_as_time_allows(shards, turn, has_time):
                report.shards += 1
                try:
                    report.checkpoints += self._shard(log, shard)
                except Unavailable as error:
                    refusals.append(error)
            for refusal in refusals:
                raise refusal

        report.stretch = self._walk.run(visit, has_time)
        return report

    def _shard(self, topic: Topic, number: int) -> bool:
        shard = topic.shard_key(number)
        tail = self._log.tail(shard)
        rows = self._log.read_back(shard, tail.offset, 1) if tail.offset >= 0 else []
        if not rows or rows[0].end - 1 < tail.offset:  # it is written down
            return False
        if rows[0].expires_s > self._clock.now_ms() // 1000 + _AHEAD_S:
            return False
        self._log.checkpoint(shard, tail)
        return True
