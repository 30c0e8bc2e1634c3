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
_SLOTS = 4  # each topic's turn comes once a day, whatever its settings: rows die under those they were written with
_AHEAD_S = 2 * 86_400 + _SLOT_S  # so that one turn may be missing; no row lives shorter than two days
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
    """Visits each topic once a day, page by page, a share of them in each run; writes only for shards whose last row
    may be gone by the turn after the next."""

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
        return (slot + zlib.crc32(topic.name.encode())) % _SLOTS == 0

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
