"""The ports in memory: for tests and simulations, kept honest by the suite that DynamoDB passes too."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from ..domain.assignment import Assignment
from ..domain.cursor import Change, Cursor, apply, holds
from ..domain.message import Draft
from ..domain.segment import Segment, ShardKey, Tail, Way
from ..domain.topic import Consumer, CursorKey, Group, Token, Topic
from ..ports import Conflict, DedupEntry, Known, Pack, PutResult, Record, Refused, Staffed, Stored, Taken
from . import codec
from .log import TOMBSTONE
from .records import DEAD

K = TypeVar("K")
V = TypeVar("V", Topic, Group, Consumer)
W = TypeVar("W")


class MemoryLog:
    """ports.Log as sorted lists."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._firsts: dict[ShardKey, list[int]] = {}
        self._rows: dict[tuple[ShardKey, int], Segment] = {}
        self._counters: dict[ShardKey, int] = {}
        self._checkpoints: dict[ShardKey, int] = {}
        self._dedup: dict[tuple[str, str], DedupEntry] = {}

    def pack(self, drafts: Sequence[Draft]) -> Pack:
        return codec.pack(drafts)

    def tail(self, shard: ShardKey) -> Tail:
        checkpoint = self._checkpoints.get(shard, -1)
        firsts = self._firsts.get(shard)
        if firsts:
            last = self._rows[shard, firsts[-1]]
            return Tail(max(last.end - 1, checkpoint), last.way)
        way = Way.RESERVED if shard in self._counters else Way.OPTIMISTIC
        return Tail(max(checkpoint, self._counters.get(shard, 0) - 1), way)

    def put(
        self, shard: ShardKey, segment: Segment, pack: Pack, dedup: Sequence[DedupEntry] = ()
    ) -> PutResult:
        with self._lock:
            by = self._rows.get((shard, segment.first))
            if by is not None:
                return Stored() if by.request_id == segment.request_id else Taken(by)
            known = tuple(e for entry in dedup if (e := self._remembered(entry)))
            if known:
                return Known(known)
            self._dedup.update({(e.topic_uid, e.dedup_id): e for e in dedup})
            self._store(shard, replace(segment, drafts=codec.unpack(pack.payload)))
        return Stored()

    def _remembered(self, entry: DedupEntry) -> DedupEntry | None:
        old = self._dedup.get((entry.topic_uid, entry.dedup_id))
        return old if old and old.expires_s > entry.accepted_ms // 1000 else None

    def _store(self, shard: ShardKey, segment: Segment) -> None:
        bisect.insort(self._firsts.setdefault(shard, []), segment.first)
        self._rows[shard, segment.first] = segment

    def reserve(self, shard: ShardKey, count: int) -> int | None:
        with self._lock:
            first = self._counters.get(shard)
            if first is not None:
                self._counters[shard] = first + count
            return first

    def begin_reserving(self, shard: ShardKey, following: int) -> None:
        with self._lock:
            self._counters.setdefault(shard, following)

    def put_tombstone(self, shard: ShardKey, offset: int, accepted_ms: int, expires_s: int) -> Segment:
        with self._lock:
            if (shard, offset) not in self._rows:
                self._store(shard, Segment(offset, 1, TOMBSTONE, accepted_ms, expires_s, (), Way.RESERVED))
            return self._rows[shard, offset]

    def read(self, shard: ShardKey, first: int, rows: int, *, consistent: bool = False) -> list[Segment]:
        firsts = self._firsts.get(shard, [])
        start = bisect.bisect_left(firsts, first)
        return [self._rows[shard, o] for o in firsts[start : start + rows]]

    def read_back(self, shard: ShardKey, last: int, rows: int, *, consistent: bool = False) -> list[Segment]:
        firsts = self._firsts.get(shard, [])
        end = bisect.bisect_right(firsts, last)
        return [self._rows[shard, o] for o in reversed(firsts[max(0, end - rows) : end])]

    def checkpoint(self, shard: ShardKey, tail: Tail) -> None:
        with self._lock:
            self._checkpoints[shard] = max(self._checkpoints.get(shard, -1), tail.offset)

    def drop_expired(self, now_s: int) -> None:
        """What DynamoDB's TTL does."""
        with self._lock:
            for (shard, first), segment in list(self._rows.items()):
                if segment.expires_s <= now_s:
                    del self._rows[shard, first]
                    self._firsts[shard].remove(first)


class MemoryRecords:
    """ports.Records as a dict, and the index of dead letters: who was buried once stays in it."""

    def __init__(self) -> None:
        self.rows: dict[tuple[CursorKey, int], Record] = {}
        self.dead: set[tuple[CursorKey, int]] = set()

    def put(self, key: CursorKey, records: Sequence[Record]) -> None:
        self.rows.update({(key, r.offset): r for r in records})
        self.dead.update((key, r.offset) for r in records if r.status == DEAD)

    def get(self, key: CursorKey, offset: int) -> Record | None:
        return self.rows.get((key, offset))

    def count_dead(self, topic_uid: str, group_uid: str) -> int:
        return sum((key.shard.topic_uid, key.group_uid) == (topic_uid, group_uid) for key, _ in self.dead)


class MemoryCursors:
    """ports.Cursors as a dict."""

    def __init__(self, records: MemoryRecords) -> None:
        self._lock = threading.Lock()
        self._items: dict[CursorKey, Cursor] = {}
        self._records = records

    def get(self, key: CursorKey, *, consistent: bool = False) -> Cursor | None:
        return self._items.get(key)

    def create(self, key: CursorKey, cursor: Cursor) -> Cursor:
        with self._lock:
            return self._items.setdefault(key, cursor)

    def write(
        self, key: CursorKey, change: Change, records: Sequence[Record] = (), *, exists: bool = True
    ) -> Cursor | Refused:
        with self._lock:
            current = self._items.get(key)
            if (current is not None) != exists or (current is not None and not holds(change, current)):
                return Refused(Conflict.LOST, current)
            self._items[key] = apply(current or Cursor(), change)
            self._records.put(key, records)
            return self._items[key]

    def delete(self, keys: Iterable[CursorKey]) -> None:
        with self._lock:
            for key in keys:
                self._items.pop(key, None)


class MemoryControl:
    """ports.Control as dicts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._topics: dict[str, Topic] = {}
        self._groups: dict[tuple[str, str], Group] = {}
        self._consumers: dict[tuple[str, str, str], Consumer] = {}
        self._assignments: dict[str, Assignment] = {}
        self._tokens: dict[str, Token] = {}
        self._key: bytes | None = None

    def topic(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def topics(self, after: str | None, limit: int) -> list[Topic]:
        return _page(self._topics, after, limit)

    def put_topic(self, topic: Topic, old: Topic | None) -> bool:
        return self._put(self._topics, topic.name, topic, old)

    def delete_topic(self, topic: Topic) -> None:
        self._groups = {key: g for key, g in self._groups.items() if key[0] != topic.uid}
        self._consumers = {key: c for key, c in self._consumers.items() if key[0] != topic.uid}
        self._topics.pop(topic.name, None)

    def group(self, topic: Topic, name: str) -> Group | None:
        return self._groups.get((topic.uid, name))

    def groups(self, topic: Topic) -> list[Group]:
        return [g for (uid, _), g in sorted(self._groups.items()) if uid == topic.uid]

    def put_group(self, topic: Topic, group: Group, old: Group | None) -> bool:
        return self._put(self._groups, (topic.uid, group.name), group, old)

    def delete_group(self, topic: Topic, group: Group) -> None:
        for consumer in self.consumers(topic, group):
            self.delete_consumer(topic, group, consumer)
        self._assignments.pop(group.uid, None)
        self._groups.pop((topic.uid, group.name), None)

    def consumers(self, topic: Topic, group: Group) -> list[Consumer]:
        home = (topic.uid, group.uid)
        return [c for key, c in sorted(self._consumers.items()) if key[:2] == home]

    def put_consumer(self, topic: Topic, group: Group, consumer: Consumer, old: Consumer | None) -> bool:
        return self._put(self._consumers, (topic.uid, group.uid, consumer.name), consumer, old)

    def delete_consumer(self, topic: Topic, group: Group, consumer: Consumer) -> None:
        self._consumers.pop((topic.uid, group.uid, consumer.name), None)

    def assignment(self, topic: Topic, group: Group) -> Assignment | None:
        return self._assignments.get(group.uid)

    def put_assignment(self, topic: Topic, group: Group, new: Assignment) -> bool:
        with self._lock:
            held = self._assignments.get(group.uid)
            if new.epoch != (held.epoch if held else 0) + 1:
                return False
            self._assignments[group.uid] = new
            return True

    def staffed(self, topic: Topic) -> list[Staffed]:
        with_consumers = [(g, tuple(self.consumers(topic, g))) for g in self.groups(topic)]
        return [Staffed(g, held, self.assignment(topic, g)) for g, held in with_consumers if held]

    def token(self, token_id: str) -> Token | None:
        return self._tokens.get(token_id)

    def tokens(self, after: str | None, limit: int) -> list[Token]:
        return _page(self._tokens, after, limit)

    def put_token(self, token: Token) -> None:
        self._tokens[token.id] = token

    def delete_token(self, token_id: str) -> bool:
        return self._tokens.pop(token_id, None) is not None

    def signing_key(self, proposal: bytes) -> bytes:
        with self._lock:
            self._key = self._key or proposal
            return self._key

    def _put(self, rows: dict[K, V], key: K, new: V, old: V | None) -> bool:
        with self._lock:
            current = rows.get(key)
            if (current.version if current else None) != (old.version if old else None):
                return False
            rows[key] = replace(new, version=(old.version if old else 0) + 1)
            return True


def _page(rows: dict[str, W], after: str | None, limit: int) -> list[W]:
    return [rows[name] for name in sorted(rows) if after is None or name > after][:limit]


class MemoryBlobs:
    """ports.Blobs as a dict."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    def put(self, name: str, body: bytes) -> None:
        self._blobs[name] = body

    def get(self, name: str) -> bytes | None:
        return self._blobs.get(name)
