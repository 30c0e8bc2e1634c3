"""Small bounded caches, with and without a maximum age."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from ...ports.world import Clock

K = TypeVar("K")
V = TypeVar("V")


class Begun(NamedTuple):
    """When the reading of a value began, and how many values had been dropped from its cache by then."""

    at_ms: int
    drops: int


class TtlCache(Generic[K, V]):
    """Keeps at most `most` values; `get` answers only those younger than `max_age_ms` (None: all).

    A value's age is the larger of what both clocks say: the time may have been set back since, and the monotonic clock
    may have stood still while the process was frozen. A value that seems to come from the future is not answered.
    """

    def __init__(self, clock: Clock, max_age_ms: int | None, most: int = 4096) -> None:
        self._clock = clock
        self._max_age_ms = max_age_ms
        self._most = most
        self._lock = threading.Lock()
        self._held: OrderedDict[K, tuple[int, int, V]] = OrderedDict()
        self._drops = 0

    def get(self, key: K) -> V | None:
        """The value under a key; None if there is none, or if it is too old."""
        entry = self._held.get(key)
        return entry[2] if entry and self._is_fresh(entry[0], entry[1]) else None

    def begin(self) -> Begun:
        """To be called before a value is read that takes its time."""
        return Begun(self._clock.now_ms(), self._drops)

    def put(self, key: K, value: V, begun: Begun | None = None) -> V:
        """Keep a value, whose age counts from the moment at which its reading began. It is not kept if any was dropped
        since: it may be what a change has just replaced."""
        now_ms, monotonic_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        at_ms = begun.at_ms if begun else now_ms
        with self._lock:
            if begun and begun.drops != self._drops:
                return value
            self._held[key] = (at_ms, monotonic_ms - max(0, now_ms - at_ms), value)
            self._held.move_to_end(key)
            while len(self._held) > self._most:
                self._held.popitem(last=False)
        return value

    def _is_fresh(self, at_ms: int, monotonic_ms: int) -> bool:
        if self._max_age_ms is None:
            return True
        ages = (self._clock.now_ms() - at_ms, self._clock.monotonic_ms() - monotonic_ms)
        return min(ages) >= 0 and max(ages) <= self._max_age_ms

    def drop(self, key: K) -> None:
        """Forget the value under a key. Harmless if there is none."""
        with self._lock:
            self._drops += 1
            self._held.pop(key, None)


class BoundedCache(Generic[K, V]):
    """Keeps values that can be computed again; when there would be more than `most`, all are dropped."""

    def __init__(self, most: int = 4096) -> None:
        self._most = most
        self._held: dict[K, V] = {}

    def of(self, key: K, make: Callable[[], V]) -> V:
        """The key's value, created if it is missing."""
        value = self._held.get(key)
        if value is None:
            if len(self._held) >= self._most:
                self._held = {}
            value = self._held.setdefault(key, make())
        return value
