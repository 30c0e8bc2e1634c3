"""Nothing that a group still owes vanishes with its row: what outlives its retention becomes a dead letter first.

Rows outlive their retention by a day (limits.RETENTION_GRACE), in which this job comes by four times. Where there is an
archive, it also keeps the rows that are not proved to be in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

from ..domain.topic import Group, Topic
from ..modes import POLICIES
from ..ports import Clock, Control
from .keeper import Keeper

_PAGE = 100
_DAY_MS = 86_400_000

Bury = Callable[[Topic, Group, int, str, int], int]
"""Make dead letters of what a group (in a broadcast, a consumer) owes in a shard and was accepted before a time."""


@dataclass(slots=True)
class Report:
    """What one run did."""

    topics: int = 0
    buried: int = 0
    kept: int = 0  # messages that the archive lacks, near their end
    finished: bool = True

    def as_dict(self) -> dict[str, int | bool]:
        return asdict(self)


class Expirer:
    """Goes round all topics, page by page. Where nothing is old it costs about a read unit a shard and group."""

    def __init__(self, control: Control, bury: Bury, clock: Clock, keeper: Keeper | None = None) -> None:
        """Without a keeper, rows go whether or not they are archived."""
        self._control = control
        self._keeper = keeper
        self._bury = bury
        self._clock = clock
        self._after: str | None = None

    def run_once(self, has_time: Callable[[], bool] = lambda: True) -> Report:
        """One round, or what of it there is time for: the next run goes on there. `has_time` is asked before each
        group."""
        report = Report()
        proved = self._keeper.proved() if self._keeper else {}
        while topics := self._control.topics(self._after, _PAGE):
            for topic in topics:
                for group in self._control.groups(topic):
                    if not has_time():
                        report.finished = False
                        return report
                    report.buried += self._group(topic, group)
                if self._keeper:
                    report.kept += self._keeper.keep(topic, proved)
                report.topics += 1
                self._after = topic.name
        self._after = None
        return report

    def _group(self, topic: Topic, group: Group) -> int:
        accepted_before_ms = self._clock.now_ms() - topic.retention_days * _DAY_MS
        uids = [""]
        if POLICIES[group.mode].per_consumer:
            uids = [c.uid for c in self._control.consumers(topic, group)]
        return sum(
            self._bury(topic, group, shard, uid, accepted_before_ms)
            for uid in uids
            for shard in range(topic.shards)
        )
