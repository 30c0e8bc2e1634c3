"""Appending: winning the next offsets of a shard by one conditional write, or reserved ones where many write."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from ...domain import ids
from ...domain.append import AlreadyMoved, DedupHit, KeyEntry, OffsetTaken, Pack, Promotable, Stored
from ...domain.append import ProduceResult as ProduceResult
from ...domain.errors import Unavailable
from ...domain.limits import LOSSES_BEFORE_RESERVING, TAIL_TRUST
from ...domain.message import Draft
from ...domain.segment import Allocation, Segment, ShardKey, Tail
from ...domain.sharding import first_shard
from ...domain.topic import Topic
from ...ports.world import Clock, Random
from ...store import Keys, Log
from ..core.expiring_cache import BoundedCache, TtlCache
from ..core.tails import Tails
from .dedup import entry_of
from .resend import ResendLookup, RowsFound

_LOOK_AROUND = 16  # one append in so many on a reserved shard tries another, which may cost half


@dataclass(kw_only=True, eq=False)
class Appender:
    """Puts packs of drafts at the end of shards. One per process: it remembers tails and keeps to a shard while it
    wins. `mark` is called before anything is put into a topic's log, and once that is done."""

    log: Log
    tails: Tails
    keys: Keys
    mark: Callable[[Topic], None]
    clock: Clock
    random: Random

    def __post_init__(self) -> None:
        self._known: TtlCache[ShardKey, Tail] = TtlCache(self.clock, TAIL_TRUST // timedelta(milliseconds=1))
        self._favourite: dict[tuple[str, int], int] = {}
        self._locks: BoundedCache[ShardKey, threading.Lock] = BoundedCache()

    def append(
        self,
        topic: Topic,
        shard: int | range,
        pack: Pack,
        originals: Sequence[Draft],
        promotables: Sequence[Promotable] = (),
        by: str = "",
        resend_lookup: ResendLookup | None = None,
    ) -> list[ProduceResult] | DedupHit | AlreadyMoved | RowsFound:
        """Win an offset for one pack. Where any shard of a range will do, a lost race hops to another. `by` is the id
        of the producer's token; `resend_lookup` finds what a named request wrote before."""
        losses = 0
        self.mark(topic)
        while True:
            key = topic.shard_key(self._favourite_of(topic, shard) if isinstance(shard, range) else shard)
            with self._lock_shard(topic, key, free=shard if isinstance(shard, range) else range(0)) as key:
                segment = self._next(topic, key, pack, by, losses >= LOSSES_BEFORE_RESERVING)
                if resend_lookup:
                    if answer := resend_lookup.before(segment):
                        return answer
                    segment = replace(segment, request_id=resend_lookup.row_id(segment.first, originals))
                entries = [
                    entry_of(topic, draft, _id_at(key, segment, i), segment.accepted_ms)
                    for i, draft in enumerate(originals)
                    if draft.dedup_id
                ]
                self._note_keys(topic, key, segment)
                result = self.log.put(key, segment, pack, entries, promotables)
                if isinstance(result, DedupHit | AlreadyMoved):
                    return result
                self._learn(key, segment, result, losses)
            if isinstance(result, Stored):
                if resend_lookup:
                    resend_lookup.note_stored(segment)
                with suppress(Unavailable):  # it is stored: to refuse it now would have it produced twice
                    self.mark(topic)  # the first mark may have expired if storing took long
                return [_result_at(key, segment, i) for i in range(segment.count)]
            losses += 1
            if isinstance(shard, range):
                self._hop(topic, key.shard, shard)

    def rows_before(self, topic: Topic, key: ShardKey, resend_lookup: ResendLookup) -> RowsFound | None:
        """The rows that an earlier try of a request wrote in a shard, as far as they are there by now."""
        end = self.tails.read(key, topic.created_ms).offset + 1
        behind = Segment(first=end, count=1, request_id="", accepted_ms=self.clock.now_ms(), expires_s=0)
        return resend_lookup.before(behind)

    def _next(self, topic: Topic, key: ShardKey, pack: Pack, by: str, reserves: bool) -> Segment:
        """The segment at the offset to try for: behind the tail, or reserved from the shard's counter.

        Each try has its own request id, so that key entries of a lost try never match another writer's message.
        """
        tail = self._known.get(key) or self._known.put(key, self.tails.read(key, topic.created_ms))
        count = len(pack.drafts)
        first = self._reserve(key, count) if tail.allocation is Allocation.RESERVED else tail.offset + 1
        now_ms = self.clock.now_ms()
        allocation = Allocation.RESERVED if reserves else tail.allocation
        request_id, expires_s = self.random.id(ids.REQUEST_ID_CHARS), topic.expires_s(now_ms)
        return Segment(first, count, request_id, now_ms, expires_s, pack.drafts, allocation, by=by)

    def _note_keys(self, topic: Topic, key: ShardKey, segment: Segment) -> None:
        """Keys are written first, so that every stored message can be found. Delayed and retried messages had theirs
        written earlier."""
        entries: list[KeyEntry] = []
        for offset, draft in enumerate(segment.drafts, segment.first):
            if draft.keys and not draft.origin and not draft.id:
                id = ids.message_id(segment.request_id, key.shard, offset)
                entries += entries_of(topic.uid, draft, id, segment.accepted_ms, segment.expires_s)
        if entries:
            self.keys.note(entries)

    def _reserve(self, key: ShardKey, count: int) -> int:
        while (first := self.log.reserve(key, count)) is None:
            # The writer that switched the shard to reserved offsets died before it created the counter.
            self.log.begin_reserving(key, self.tails.read(key).offset + 1)
        return first

    def _learn(self, key: ShardKey, segment: Segment, result: Stored | OffsetTaken, losses: int) -> None:
        """Remember the tail that a put has shown."""
        if isinstance(result, Stored):
            tail = self._known.get(key)
            was_reserved = tail is not None and tail.allocation is Allocation.RESERVED
            if segment.allocation is Allocation.RESERVED and not was_reserved:
                # It is stored; who reserves next creates the counter that is missing.
                with suppress(Unavailable):
                    self.log.begin_reserving(key, segment.end)
            self._known.put(key, Tail(segment.end - 1, segment.allocation))
        elif losses % 2:  # the tail runs ahead of us: ask for it
            self._known.drop(key)
        else:
            self._known.put(key, Tail(result.by.end - 1, result.by.allocation))

    def _favourite_of(self, topic: Topic, of: range) -> int:
        favourite = self._favourite.get((topic.uid, of.start))
        if favourite is None or favourite not in of:
            favourite = self._favourite[topic.uid, of.start] = of[first_shard(topic.uid, len(of))]
        tail = self._known.get(topic.shard_key(favourite))
        if tail and tail.allocation is Allocation.RESERVED and not self.random.below(_LOOK_AROUND):
            return self._hop(topic, favourite, of)
        return favourite

    def _hop(self, topic: Topic, shard: int, of: range) -> int:
        """Another shard than this one becomes the favourite; what was known of its tail is old."""
        others = len(of) - 1
        other = of[(shard - of.start + 1 + self.random.below(others)) % len(of)] if others else shard
        self._favourite[topic.uid, of.start] = other
        if other != shard:
            self._known.drop(topic.shard_key(other))
        return other

    @contextmanager
    def _lock_shard(self, topic: Topic, key: ShardKey, *, free: range) -> Iterator[ShardKey]:
        """The right to append to a shard in this process: its threads need not race each other. `free`: rather to
        another shard of these than to wait."""
        lock = self._locks.of(key, threading.Lock)
        for n in range(len(free)):
            other = topic.shard_key(free[(key.shard - free.start + n) % len(free)])
            other_lock = self._locks.of(other, threading.Lock)
            if other_lock.acquire(blocking=False):
                key, lock = other, other_lock
                break
        else:
            lock.acquire()
        try:
            yield key
        finally:
            lock.release()


def _id_at(key: ShardKey, segment: Segment, index: int) -> str:
    return ids.message_id(segment.request_id, key.shard, segment.first + index)


def _result_at(key: ShardKey, segment: Segment, index: int) -> ProduceResult:
    id, offset = _id_at(key, segment, index), segment.first + index
    return ProduceResult(id, key.shard, offset, segment.accepted_ms)


def entries_of(topic_uid: str, draft: Draft, id: str, accepted_ms: int, expires_s: int) -> list[KeyEntry]:
    """What finds a message by its keys; to be noted before the message is stored."""
    return [KeyEntry(topic_uid, key, id, accepted_ms, expires_s) for key in dict.fromkeys(draft.keys)]
