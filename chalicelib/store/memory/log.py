"""ports.Log in memory."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ...domain.cursor import Cursor
from ...domain.message import Draft
from ...domain.segment import Allocation, Segment, ShardKey, Tail
from ...domain.timer import Timer
from ...domain.topic import CursorKey
from ...ports.log import (
    AlreadyMoved,
    DedupEntry,
    DedupHit,
    OffsetTaken,
    Pack,
    Promotable,
    PutResult,
    Rows,
    Stored,
)
from .. import codec
from ..log import TOMBSTONE
from .tables import MemoryTables, check_actions


class MemoryLog:
    """ports.Log as sorted lists."""

    def __init__(self, tables: MemoryTables, on_put: Callable[[ShardKey], None] = lambda shard: None) -> None:
        """`on_put` is called with the shard of each segment that was put."""
        self._tables = tables
        self._on_put = on_put
        self._lock = tables.lock
        self._firsts: dict[ShardKey, list[int]] = {}
        self._rows: dict[tuple[ShardKey, int], Segment] = {}
        self._counters: dict[ShardKey, int] = {}
        self._checkpoints: dict[ShardKey, int] = {}

    def pack(self, drafts: Sequence[Draft], *, whole: bool = False) -> Pack:
        return codec.pack(drafts, whole=whole)

    def tail(self, shard: ShardKey) -> Tail:
        with self._lock:
            checkpoint = self._checkpoints.get(shard, -1)
            firsts = self._firsts.get(shard)
            if firsts:
                last = self._rows[shard, firsts[-1]]
                allocation = Allocation.RESERVED if shard in self._counters else last.allocation
                return Tail(max(last.end - 1, checkpoint), allocation, last.accepted_ms)
            allocation = Allocation.RESERVED if shard in self._counters else Allocation.OPTIMISTIC
            return Tail(max(checkpoint, self._counters.get(shard, 0) - 1), allocation)

    def put(
        self,
        shard: ShardKey,
        segment: Segment,
        pack: Pack,
        dedup: Sequence[DedupEntry] = (),
        promotables: Sequence[Promotable] = (),
    ) -> PutResult:
        check_actions(1 + len(dedup) + sum(1 if isinstance(each, Timer) else 2 for each in promotables))
        with self._lock:
            by = self._rows.get((shard, segment.first))
            if by is not None:
                return Stored() if by.request_id == segment.request_id else OffsetTaken(by)
            if duplicates := self._tables.used_entries(dedup):
                return DedupHit(duplicates)
            if missing_places := tuple(
                index for index, each in enumerate(promotables) if not self._tables.has(each)
            ):
                return AlreadyMoved(missing_places)
            self._tables.remember(dedup)
            for n, each in enumerate(promotables):
                self._tables.move(each, shard, segment, n)
            self._store(shard, replace(segment, drafts=codec.unpack(pack.payload)))
        self._on_put(shard)
        return Stored()

    def _store(self, shard: ShardKey, segment: Segment) -> None:
        bisect.insort(self._firsts.setdefault(shard, []), segment.first)
        self._rows[shard, segment.first] = segment

    def dedup_entry(self, topic_uid: str, dedup_id: str) -> DedupEntry | None:
        with self._lock:
            return self._tables.dedup.get((topic_uid, dedup_id))

    def reserve(self, shard: ShardKey, count: int) -> int | None:
        with self._lock:
            first = self._counters.get(shard)
            if first is not None:
                self._counters[shard] = first + count
            return first

    def begin_reserving(self, shard: ShardKey, next_offset: int) -> None:
        with self._lock:
            self._counters.setdefault(shard, next_offset)

    def put_tombstone(self, shard: ShardKey, offset: int, accepted_ms: int, expires_s: int) -> Segment:
        with self._lock:
            if (shard, offset) not in self._rows:
                self._store(
                    shard,
                    Segment(
                        first=offset,
                        count=1,
                        request_id=TOMBSTONE,
                        accepted_ms=accepted_ms,
                        expires_s=expires_s,
                        drafts=(),
                        allocation=Allocation.RESERVED,
                    ),
                )
            return self._rows[shard, offset]

    def read(self, shard: ShardKey, first: int, rows: int, *, consistent: bool = False) -> Rows:
        with self._lock:
            firsts = self._firsts.get(shard, [])
            start = bisect.bisect_left(firsts, first)
            found = (self._rows[shard, o] for o in firsts[start : start + rows])
            return Rows(found, is_end=start + rows > len(firsts))

    def read_back(self, shard: ShardKey, last: int, rows: int, *, consistent: bool = False) -> list[Segment]:
        with self._lock:
            firsts = self._firsts.get(shard, [])
            end = bisect.bisect_right(firsts, last)
            return [self._rows[shard, o] for o in reversed(firsts[max(0, end - rows) : end])]

    def amend(
        self,
        shard: ShardKey,
        old: Segment,
        pack: Pack,
        offset: int,
        cursors: Mapping[CursorKey, Cursor | None],
    ) -> bool:
        with self._lock:
            there = self._rows.get((shard, old.first))
            if there is None or (there.request_id, there.edition) != (old.request_id, old.edition):
                return False
            if not self._tables.note_amended(cursors, offset):
                return False
            drafts = codec.unpack(pack.payload)
            self._rows[shard, old.first] = replace(there, drafts=drafts, edition=old.edition + 1)
        return True

    def keep(self, shard: ShardKey, first: int, until_s: int) -> bool:
        with self._lock:
            row = self._rows.get((shard, first))
            if row is None or row.expires_s >= until_s:
                return False
            planned_s = row.planned_s or row.expires_s
            self._rows[shard, first] = replace(row, expires_s=until_s, planned_s=planned_s)
            return True

    def checkpoint(self, shard: ShardKey, tail: Tail) -> None:
        with self._lock:
            self._checkpoints[shard] = max(self._checkpoints.get(shard, -1), tail.offset)

    def drop_expired(self, now_s: int, spares: Callable[[Segment], bool] = lambda segment: False) -> None:
        """Delete expired rows, as DynamoDB's TTL does; some rows it may take later."""
        with self._lock:
            for (shard, first), segment in list(self._rows.items()):
                if segment.expires_s <= now_s and not spares(segment):
                    del self._rows[shard, first]
                    self._firsts[shard].remove(first)
            self._tables.forget_dedup(now_s)
