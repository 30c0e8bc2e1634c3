"""A cache of segments: many claims and groups share one read. Segments may be edited, so an entry says when it was
read."""

from __future__ import annotations

import bisect
import itertools
import threading
from collections import deque
from dataclasses import dataclass

from ...domain.segment import Segment, ShardKey

_MOST_BYTES = 32 * 1024 * 1024
_OVERHEAD_BYTES = 512  # of a message in memory, beside its body


@dataclass(frozen=True, slots=True)
class CachedSegment:
    """A segment, and the numbers (`moment`) of its last read and of its last consistent read."""

    segment: Segment
    read: int
    sure: int


class SegmentCache:
    """Keeps some megabytes of segments and drops the oldest first. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._moments = itertools.count(1)
        self._bytes = 0
        self._order: deque[tuple[ShardKey, int]] = deque()
        self._firsts: dict[ShardKey, list[int]] = {}
        self._held: dict[tuple[ShardKey, int], CachedSegment] = {}
        self._messages: dict[ShardKey, int] = {}

    def moment(self) -> int:
        """A number higher than all before; take it before a read, to tell newer reads from older ones."""
        return next(self._moments)

    def segment_holding(self, shard: ShardKey, offset: int) -> CachedSegment | None:
        """The cached segment that holds the offset."""
        with self._lock:
            firsts = self._firsts.get(shard, ())
            at = bisect.bisect_right(firsts, offset) - 1
            entry = self._held[shard, firsts[at]] if at >= 0 else None
        return entry if entry and offset < entry.segment.end else None

    def keep(self, shard: ShardKey, segment: Segment, read_at: int, *, sure: bool) -> Segment:
        """Cache a segment that was read from moment `read_at` on. Returns its newest known edition. If the cached
        segment has another request id, its row has expired, and the new one replaces it."""
        with self._lock:
            old = self._held.get((shard, segment.first))
            surely = read_at if sure else 0
            if old is None:
                self._order.append((shard, segment.first))
                bisect.insort(self._firsts.setdefault(shard, []), segment.first)
                self._count(shard, segment, 1)
            elif segment.request_id != old.segment.request_id or segment.edition > old.segment.edition:
                self._count(shard, old.segment, -1)
                self._count(shard, segment, 1)
            else:
                segment = old.segment
            if old:
                read_at, surely = max(read_at, old.read), max(surely, old.sure)
            self._held[shard, segment.first] = CachedSegment(segment, read_at, surely)
            while self._bytes > _MOST_BYTES and len(self._order) > 1:
                self._drop(*self._order.popleft())
        return segment

    def average(self, shard: ShardKey) -> float | None:
        """How many messages the shard's cached segments have on average; None if none is cached."""
        with self._lock:
            count = len(self._firsts.get(shard, ()))
            return self._messages[shard] / count if count else None

    def _drop(self, shard: ShardKey, first: int) -> None:
        self._count(shard, self._held.pop((shard, first)).segment, -1)
        self._firsts[shard].remove(first)
        if not self._firsts[shard]:
            del self._firsts[shard], self._messages[shard]

    def _count(self, shard: ShardKey, segment: Segment, sign: int) -> None:
        bodies = sum(len(draft.body) for draft in segment.drafts)
        self._bytes += sign * (bodies + _OVERHEAD_BYTES * (1 + len(segment.drafts)))
        self._messages[shard] = self._messages.get(shard, 0) + sign * segment.count
