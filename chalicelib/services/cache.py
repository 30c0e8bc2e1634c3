"""A small bounded cache with an age, for what is read often and changed seldom."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

from ..ports import Clock

K = TypeVar("K")
V = TypeVar("V")


class Aging(Generic[K, V]):
    """Keeps at most `most` values; `get` answers only those younger than `max_age_ms`."""

    def __init__(self, clock: Clock, max_age_ms: int, most: int = 4096) -> None:
        self._clock = clock
        self._max_age_ms = max_age_ms
        self._most = most
        self._lock = threading.Lock()
        self._held: OrderedDict[K, tuple[int, V]] = OrderedDict()

    def get(self, key: K) -> V | None:
        held = self._held.get(key)
        if (
            held is None or not 0 <= self._clock.now_ms() - held[0] <= self._max_age_ms
        ):  # clocks may step back
            return None
        return held[1]

    def put(self, key: K, value: V, since_ms: int | None = None) -> V:
        """Keep a value, whose age counts from `since_ms`: the moment before it was read, where that took its time."""
        with self._lock:
            self._held[key] = (self._clock.now_ms() if since_ms is None else since_ms, value)
            self._held.move_to_end(key)
            while len(self._held) > self._most:
                self._held.popitem(last=False)
        return value

    def drop(self, key: K) -> None:
        with self._lock:
            self._held.pop(key, None)
