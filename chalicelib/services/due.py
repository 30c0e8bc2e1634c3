"""What becomes of timers that are due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..domain.errors import NotFound
from ..domain.segment import ShardKey
from ..domain.timer import ANY, Timer, entered
from ..domain.topic import Topic
from ..ports import Timers
from .catalog import Catalog
from .produce import Producer
from .wake import Waker


class Due:
    """Puts delayed messages and retries into their logs."""

    def __init__(self, catalog: Catalog, producer: Producer, timers: Timers, waker: Waker) -> None:
        self._catalog = catalog
        self._producer = producer
        self._timers = timers
        self._waker = waker

    def append(self, shard: ShardKey, keep_days: int, timers: Sequence[Timer]) -> int:
        """Put what timers hold into a shard (ANY: whichever is free); how many went (the others had gone before)."""
        home = self._home(shard, keep_days)
        if home is None:
            self._timers.drop(timers)
            return 0
        number = None if shard.shard == ANY else shard.shard
        members = [(t, replace(entered(t), shard=number)) for t in timers if t.draft is not None]
        placed = [place for place in self._producer.move(home, members) if place]
        self._waker.appended(home, {place.shard for place in placed if place.shard is not None})
        return len(placed)

    def _home(self, shard: ShardKey, keep_days: int) -> Topic | None:
        """The topic of a shard, or the lane it is; None where the topic is no more."""
        if "~" in shard.topic:
            return Topic(shard.topic, shard.topic_uid, 0, shards=1, retention_days=keep_days)
        try:
            topic = self._catalog.topic(shard.topic)
        except NotFound:
            return None
        return topic if topic.uid == shard.topic_uid else None
