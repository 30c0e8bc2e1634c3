"""Marking topics: the sweep looks at marked topics only, the meter reader at noted ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ...domain.errors import Unavailable
from ...domain.mark import WINDOW_MS, Mark, repeated_at, window_of
from ...domain.timer import ANY, Timer, wake_up
from ...domain.topic import Topic
from ...ports.world import Clock
from .expiring_cache import TtlCache

if TYPE_CHECKING:
    from ...store import Marks


class Marker:
    """Marks topics with push consumers: one write in two minutes for each topic that this process appends to."""

    def __init__(self, marks: Marks, store_timers: Callable[[Sequence[Timer]], object], clock: Clock) -> None:
        """`store_timers` stores timers, in another table than the marks."""
        self._marks = marks
        self._store_timers = store_timers
        self._clock = clock
        self._marked: TtlCache[str, int] = TtlCache(clock, WINDOW_MS)

    def mark(self, topic: Topic) -> None:
        """Mark a topic (for a lane, its topic). Call it before the append: if the process dies in between, the sweep
        only looks in vain.

        A mark that cannot be stored is left to a timer, which marks the topic later. Raises Unavailable if the timer
        cannot be stored either: then nothing may be accepted."""
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
            self._store_timers([wake_up("mark", shard, repeated_at(now_ms), now_ms)])
            return
        self._marked.put(name, begin_ms)


_AGAIN_MS = 60_000


class MeterNotes:
    """Notes a topic at most once a minute. Called by readers of new rows, never by writers."""

    def __init__(self, marks: Marks, clock: Clock) -> None:
        self._marks = marks
        self._noted: TtlCache[str, bool] = TtlCache(clock, _AGAIN_MS)

    def note_topics_of(self, shards: Iterable[str]) -> None:
        """Note the topics of these shards (partition keys of the log), and of retry lanes."""
        for name in {shard.partition(":")[0].partition("~")[0] for shard in shards}:
            if self._noted.get(name):
                continue
            try:
                self._marks.note_moving(name)
            except Unavailable:
                continue  # a failed note only makes a curve coarser
            self._noted.put(name, True)
