"""Noting topics with new messages, so that their counters are read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...domain.errors import Unavailable
from ...ports.world import Clock
from .expiring_cache import TtlCache

if TYPE_CHECKING:
    from ...store.marks import Marks


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
