"""Small bounded caches, with and without a maximum age."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from ...ports.world import Clock

K = TypeVar("K")
V = TypeVar("V")


@dataclass(eq=False)
class StoreCall(Generic[K, V]):
    """A call of the store under way that shows the value of one key: a read, or a write. It is *overtaken* if the value
    is changed in the cache before the call ends: then the cache may know of something newer."""

    cache: TtlCache[K, V]
    key: K
    at_ms: int
    monotonic_ms: int
    is_overtaken: bool = False

    def keep(self, value: V) -> V:
        """Keep what was read, unless the call was overtaken. Its age counts from the call's beginning."""
        with self.cache.lock:
            if not self.is_overtaken:
                self.cache.hold(self.key, value, self.at_ms, self.monotonic_ms)
        return value

    def replace(self, value: V) -> V:
        """Keep a value that was written or read consistently; discard the results of calls under way. If this call was
        overtaken itself, the newer value is unknown: then none is kept."""
        self.cache.replace(self, value)
        return value


class TtlCache(Generic[K, V]):
    """Keeps at most `most` values; `get` answers only those younger than `max_age_ms` (None: all).

    A value's age is the larger of what both clocks say: the time may have been set back since, and the monotonic clock
    may have stood still while the process was frozen. A value that seems to come from the future is not answered.

    Threads share it: what one reads while another changes it would replace the newer value. So it is read in `calling`.
    """

    def __init__(self, clock: Clock, max_age_ms: int | None, most: int = 4096) -> None:
        self._clock = clock
        self._max_age_ms = max_age_ms
        self._most = most
        self.lock = threading.Lock()
        self._held: OrderedDict[K, tuple[int, int, V]] = OrderedDict()
        self._under_way: set[StoreCall[K, V]] = set()

    def get(self, key: K) -> V | None:
        """The value under a key; None if there is none, or if it is too old."""
        entry = self._held.get(key)
        return entry[2] if entry and self._is_fresh(entry[0], entry[1]) else None

    @contextmanager
    def calling(self, key: K) -> Iterator[StoreCall[K, V]]:
        """Call the store for the value of a key, which takes its time; `keep` or `replace` its result inside."""
        call = StoreCall(self, key, self._clock.now_ms(), self._clock.monotonic_ms())
        with self.lock:
            self._under_way.add(call)
        try:
            yield call
        finally:
            with self.lock:
                self._under_way.discard(call)

    def put(self, key: K, value: V) -> V:
        """Keep a value that is known now."""
        with self.lock:
            self._overtake(key)
            self.hold(key, value, self._clock.now_ms(), self._clock.monotonic_ms())
        return value

    def replace(self, call: StoreCall[K, V], value: V) -> None:
        """See StoreCall."""
        with self.lock:
            if call.is_overtaken:
                self._held.pop(call.key, None)
            else:
                self.hold(call.key, value, self._clock.now_ms(), self._clock.monotonic_ms())
            self._overtake(call.key)

    def hold(self, key: K, value: V, at_ms: int, monotonic_ms: int) -> None:
        """Keep a value as of a time; for StoreCall, under the lock."""
        self._held[key] = (at_ms, monotonic_ms, value)
        self._held.move_to_end(key)
        while len(self._held) > self._most:
            self._held.popitem(last=False)

    def _overtake(self, key: K) -> None:
        for call in self._under_way:
            call.is_overtaken |= call.key == key

    def _is_fresh(self, at_ms: int, monotonic_ms: int) -> bool:
        if self._max_age_ms is None:
            return True
        ages = (self._clock.now_ms() - at_ms, self._clock.monotonic_ms() - monotonic_ms)
        return min(ages) >= 0 and max(ages) <= self._max_age_ms

    def drop(self, key: K) -> None:
        """Forget the value under a key. Harmless if there is none."""
        with self.lock:
            self._overtake(key)
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
