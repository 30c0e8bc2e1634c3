"""Marking topics: the sweep looks at marked topics only, the meter reader at noted ones."""

from __future__ import annotations

from collections.abc import Iterable

from ...domain.errors import Unavailable
from ...domain.mark import WINDOW_MS, Mark, repeated_at, window_of
from ...domain.timer import ANY, wake_up
from ...domain.times import MINUTE_MS
from ...domain.topic import Topic
from ...ports.world import Clock
from ...store import Marks, Timers
from .expiring_cache import TtlCache


class Marker:
    """Marks topics with push consumers: one write in two minutes for each topic that this process appends to. Notes
    topics with new rows at most once a minute."""

    def __init__(self, marks: Marks, timers: Timers, clock: Clock) -> None:
        self._marks = marks
        self._timers = timers
        self._clock = clock
        self._marked: TtlCache[str, int] = TtlCache(clock, WINDOW_MS)
        self._noted: TtlCache[str, bool] = TtlCache(clock, MINUTE_MS)

    def mark(self, topic: Topic) -> None:
        """Mark a topic (for a lane, its topic). Call it before the append: if the process dies in between, the sweep
        only looks in vain.

        A mark that cannot be stored is left to a timer, in another table, which marks the topic later. Raises
        Unavailable if the timer cannot be stored either: then nothing may be accepted."""
        if not topic.is_called:
            return
        name = topic.name.partition("~")[0]
        now_ms = self._clock.now_ms()
        begin_ms = window_of(name, now_ms)
        if self._marked.get(name) == begin_ms:
            return
        try:
            self._marks.mark(Mark(name, begin_ms))
        except Unavailable:
            shard = topic.shard_key(ANY)
            self._timers.store([wake_up("mark", shard, repeated_at(now_ms), now_ms)])
            return
        self._marked.put(name, begin_ms)

    def note_topics_of(self, shards: Iterable[str]) -> None:
        """Have the meters read of the topics of these shards (partition keys of the log), and of retry lanes. Called by
        readers of new rows, never by writers."""
        for name in {shard.partition(":")[0].partition("~")[0] for shard in shards}:
            if self._noted.get(name):
                continue
            try:
                self._marks.note_moving(name)
            except Unavailable:
                continue  # a failed note only makes a curve coarser
            self._noted.put(name, True)
