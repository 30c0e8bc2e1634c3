"""Ids of delayed messages that keep an order, by their unit: one ordering key, or one shard.

Delayed messages of one ordering key, or of one chosen shard, keep their order: one fragment has all their timers, and
their names sort in the order of acceptance. The fragment of a timer is computed from its id, so a name is chosen that
falls into that fragment (docs/adr/0021).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ...domain import ids
from ...domain.topic import Topic
from ...ports.world import Clock, Random

_PER_MS = 1 << 15


class UnitNames:
    """Makes names that rise with each call in one process; those of several processes sort by their clocks."""

    def __init__(self, clock: Clock, random: Random, fragment_of: Callable[[str], int]) -> None:
        """`fragment_of`: the fragment of a timer's id, or of a unit."""
        self._fragment_of = fragment_of
        self._clock = clock
        self._random = random
        self._sequence = 0
        self._lock = threading.Lock()

    def name(self, topic: Topic, unit: str, id_of: Callable[[str], str]) -> str:
        """The next name in a unit; `id_of` makes the timer's id from it, which falls into the unit's fragment."""
        sequence, ending = self._next(), self._random.id(ids.REQUEST_ID_CHARS)
        fragment = self._fragment_of(f"{topic.uid}/{unit}")
        names = (ids.sequence_name(sequence, end) for end in ids.endings(ending))
        return next(name for name in names if self._fragment_of(id_of(name)) == fragment)

    def _next(self) -> int:
        with self._lock:
            self._sequence = max(self._sequence + 1, self._clock.now_ms() * _PER_MS)
            return self._sequence
