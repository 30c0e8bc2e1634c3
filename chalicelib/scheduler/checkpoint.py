"""Tails outlive rows: a quiet shard's tail is written down before its last row may expire.

Without it an empty log would begin again at 0 while cursors stand beyond, and nothing would be delivered.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from ..domain.topic import Topic, lane_of
from ..modes import POLICIES
from ..ports import Clock, Control, Log

_SLOT_S = 6 * 3600  # the job runs every six hours
_DAY_S = 86_400
_PAGE = 100


@dataclass(frozen=True, slots=True)
class Report:
    """What one run did."""

    shards: int = 0
    checkpoints: int = 0
    finished: bool = True

    def as_dict(self) -> dict[str, int | bool]:
        return asdict(self)


class Checkpointer:
    """Visits each topic four times within its retention, page by page, a share of them in each run; writes
    only for shards whose last row is past the middle of its life."""

    def __init__(self, control: Control, log: Log, clock: Clock) -> None:
        self._control = control
        self._log = log
        self._clock = clock

    def run_once(self, has_time: Callable[[], bool] = lambda: True) -> Report:
        """One round; `has_time` is asked before each topic."""
        after: str | None = None
        shards = checkpoints = 0
        while True:
            topics = self._control.topics(after, _PAGE)
            for topic in topics:
                if not has_time():
                    return Report(shards, checkpoints, finished=False)
                if self._has_turn(topic):
                    for log in (topic, *self._lanes(topic)):
                        shards += log.shards
                        checkpoints += sum(self._shard(log, shard) for shard in range(log.shards))
            if len(topics) < _PAGE:
                return Report(shards, checkpoints)
            after = topics[-1].name

    def _lanes(self, topic: Topic) -> Iterator[Topic]:
        """The retry lanes of the topic's groups, and of broadcasts' consumers: their rows expire as well."""
        for group in self._control.groups(topic):
            uids = [""]
            if POLICIES[group.mode].per_consumer:
                uids = [c.uid for c in self._control.consumers(topic, group)]
            for uid in uids:
                yield lane_of(topic, group, uid)

    def _has_turn(self, topic: Topic) -> bool:
        slot = self._clock.now_ms() // 1000 // _SLOT_S
        return (slot + zlib.crc32(topic.name.encode())) % topic.retention_days == 0

    def _shard(self, topic: Topic, number: int) -> bool:
        shard = topic.shard_key(number)
        tail = self._log.tail(shard)
        rows = self._log.read_back(shard, tail.offset, 1) if tail.offset >= 0 else []
        ahead_s = topic.retention_days * _DAY_S // 2 + _SLOT_S
        if not rows or rows[0].expires_s > self._clock.now_ms() // 1000 + ahead_s:
            return False
        self._log.checkpoint(shard, tail)
        return True
