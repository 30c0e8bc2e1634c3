"""Tails outlive rows: a quiet shard's tail is written down before its last row may expire.

Without it an empty log would begin again at 0 while cursors stand beyond, and nothing would be delivered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

from ..domain.segment import ShardKey
from ..domain.topic import Topic
from ..ports import Clock, Control, Log

_AHEAD_S = 86_400  # checkpoint a tail that could expire within a day; the job runs every six hours
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
    """Visits every shard of every topic, page by page; writes only for shards whose last row is near its end."""

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
                shards += topic.shards
                checkpoints += self._topic(topic)
            if len(topics) < _PAGE:
                return Report(shards, checkpoints)
            after = topics[-1].name

    def _topic(self, topic: Topic) -> int:
        return sum(self._shard(topic.shard_key(shard)) for shard in range(topic.shards))

    def _shard(self, shard: ShardKey) -> bool:
        tail = self._log.tail(shard)
        rows = self._log.read_back(shard, tail.offset, 1) if tail.offset >= 0 else []
        if not rows or rows[0].expires_s > self._clock.now_ms() // 1000 + _AHEAD_S:
            return False
        self._log.checkpoint(shard, tail)
        return True
