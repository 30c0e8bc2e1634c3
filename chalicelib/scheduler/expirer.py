"""The function `expire`: messages whose retention has ended become dead letters for every group that has not settled
them.

TTL deletes a row one day after its retention (limits.RETENTION_GRACE); this job runs four times in that day. With an
archive, it also keeps rows that the archive does not have yet (keeper.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

from ..domain.errors import Unavailable
from ..domain.topic import Group, Topic
from ..ports.world import Clock
from .keeper import RetentionGuard
from .walk import HasTime, Stretch, Trouble, Walk, as_many_as_time_allows, owners

if TYPE_CHECKING:
    from ..store.control import Control
    from ..store.rounds import Rounds


_JOB = "expire"

ExpireCursor = Callable[[Topic, Group, int | None, str, HasTime], int]
"""Make dead letters of what a group (in a broadcast, a consumer) owes in a shard, or has in its retry lane (None), past
its retention, as many as there is time for."""


@dataclass(slots=True)
class ExpireReport:
    """What one run did."""

    buried: int = 0
    kept: int = 0  # messages that the archive lacks, near their end
    stretch: Stretch = field(default_factory=Stretch)

    def as_dict(self) -> dict[str, int | bool]:
        """The counts as JSON, for the function's log line."""
        return {"buried": self.buried, "kept": self.kept, **self.stretch.as_dict()}


class Expirer:
    """Visits all topics. A topic without old messages costs about one read unit per shard and group."""

    def __init__(
        self,
        *,
        control: Control,
        rounds: Rounds,
        expire: ExpireCursor,
        see: Callable[[Topic, HasTime], None],
        clock: Clock,
        guard: RetentionGuard | None = None,
    ) -> None:
        """`see` is shown each topic. Without a guard, rows go whether or not they are archived."""
        self._control = control
        self._walk = Walk(job=_JOB, control=control, rounds=rounds, clock=clock)
        self._guard = guard
        self._expire = expire
        self._see = see

    def run_once(self, has_time: HasTime = lambda: True) -> ExpireReport:
        """Visit the topics, as many as there is time for; the next run goes on there. Within a topic, each run begins
        with another cursor."""
        report, is_whole = ExpireReport(), True
        proved_ends: Mapping[str, int] | None = None
        troubles: list[Trouble] = []
        try:
            proved_ends = self._guard.proved_ends() if self._guard else None
        except Unavailable as error:  # the bucket: the next run keeps rows, this one buries what is owed
            troubles.append(Trouble.of("", error))

        def visit(topic: Topic, has_time: HasTime, turn: int) -> None:
            nonlocal is_whole
            refusals: list[Unavailable] = []
            if self._guard and proved_ends is not None:
                count, had_time = self._guard.keep(topic, proved_ends, has_time, turn, refusals)
                report.kept += count
                is_whole = is_whole and had_time
            shards = (*range(topic.shards), None)
            cursors = list(product(owners(self._control, topic, refusals), shards))
            for (group, uid), shard in as_many_as_time_allows(cursors, turn, has_time):
                try:
                    report.buried += self._expire(topic, group, shard, uid, has_time)
                except Unavailable as error:
                    refusals.append(error)
            self._see(topic, has_time)
            for refusal in refusals:
                raise refusal

        report.stretch = self._walk.run(visit, has_time)
        report.stretch.troubles += troubles
        report.stretch.finished = report.stretch.finished and is_whole
        return report
