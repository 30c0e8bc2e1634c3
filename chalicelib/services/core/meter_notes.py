"""Noting topics in which something moves, so that their meters are read."""

from __future__ import annotations

from collections.abc import Iterable

from ...domain.errors import Unavailable
from ...ports.rounds import Marks
from ...ports.world import Clock
from .expiring_cache import TtlCache

_AGAIN_MS = 60_000


class MeterNotes:
    """Notes a topic at most once a minute. To be called by who sees new rows of the log, never by who puts them."""

    def __init__(self, marks: Marks, clock: Clock) -> None:
        self._marks = marks
        self._noted: TtlCache[str, bool] = TtlCache(clock, _AGAIN_MS)

    def see(self, shards: Iterable[str]) -> None:
        """Note the topics of these shards (partition keys of the log), and of retry lanes."""
        for name in {shard.partition(":")[0].partition("~")[0] for shard in shards}:
            if self._noted.get(name):
                continue
            try:
                self._marks.moves(name)
            except Unavailable:
                continue  # a curve is coarser, no more
            self._noted.put(name, True)
