"""Positions of a group: earliest, latest, a time, an offset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from ...domain import cursor_transitions as transitions
from ...domain import cursor_write
from ...domain.cursor import Cursor, start_at
from ...domain.errors import NotFound
from ...domain.limits import MIN_RETENTION
from ...domain.segment import Segment, ShardKey
from ...domain.times import CLOCKS_DIFFER_MS, GoOn, always
from ...domain.topic import EARLIEST, LATEST, CursorKey, Group, Topic, Where, cursor_key, cursor_keys
from ...ports.world import Clock
from ...store import Log
from .cursor_store import CursorSnapshot, CursorStore
from .tails import Tails

_ROWS = 64
_PAGES = 2
_SHORTEST_RETENTION_MS = MIN_RETENTION // timedelta(milliseconds=1)

Place = tuple[int, int]  # an offset, and where its segment begins
Places = dict[ShardKey, Place]


class Positions:
    """Finds offsets and moves cursors to them. All reads are consistent: a stale one would skip messages."""

    def __init__(self, *, log: Log, tails: Tails, states: CursorStore, clock: Clock) -> None:
        self._log = log
        self._tails = tails
        self._states = states
        self._clock = clock

    def find(self, topic: Topic, key: CursorKey, where: Where) -> Place:
        """The place in the key's shard. An offset outside the log is moved to its nearest end."""
        shard = key.shard
        end = self._tails.read(shard, topic.created_ms).offset + 1
        if where == LATEST:
            return end, end
        first = self._first_offset(topic, shard, end)
        if where == EARLIEST:
            return first, first
        if isinstance(where, str):
            position = self._since(shard, int(where[1:]), first, end)
            return position, position
        offset = min(max(where, first), end)
        holding = self._log.read_back(shard, offset, 1, consistent=True) if offset < end else []
        return offset, holding[0].first if holding else offset

    def are_leased(self, keys: Sequence[CursorKey]) -> bool:
        """Is a message of one of these cursors under a lease that is not over?"""
        now_ms = self._clock.now_ms()
        leases = (lease for key in keys for lease in self._states.read(key).cursor.leases.values())
        return any(lease.deadline_ms > now_ms for lease in leases)

    def has_backlog(self, key: CursorKey) -> bool:
        """Is there something to claim behind the cursor?"""
        now_ms = self._clock.now_ms()
        cursor = transitions.lapse(self._states.last(key).cursor, now_ms)
        is_due = bool(transitions.due_spans(cursor, now_ms))
        return is_due or self._tails.read(key.shard).offset >= cursor.next

    def _first_offset(self, topic: Topic, shard: ShardKey, end: int) -> int:
        """The first offset of the log: rows whose retention has ended do not count."""
        now_ms = self._clock.now_ms()
        rows = self._log.read(shard, 0, 1, consistent=True)
        if rows and topic.keeps_until_ms(rows[0]) <= now_ms:
            at = self._at_time(shard, now_ms - topic.retention_ms + 1, rows[0].first, end)
            rows = self._log.read(shard, at, _ROWS, consistent=True)
        while rows:  # the first rows may have been written under a shorter retention
            for row in rows:
                if topic.keeps_until_ms(row) > now_ms:
                    return row.first
            rows = self._log.read(shard, rows[-1].end, _ROWS, consistent=True)
        return end

    def at_time(self, shard: ShardKey, at_ms: int) -> int:
        """The first segment accepted at or after a time, among all rows that are left."""
        rows = self._log.read(shard, 0, 1, consistent=True)
        end = self._tails.read(shard).offset + 1
        return self._at_time(shard, at_ms, rows[0].first, end) if rows else end

    def _since(self, shard: ShardKey, at_ms: int, low: int, high: int) -> int:
        """The first segment accepted at or after a time. Behind it there may be earlier ones, of writers whose clocks
        were slow, so it is looked for from somewhat earlier on. In a busy shard that would be much to look through:
        there the clocks are trusted."""
        at = self._at_time(shard, at_ms - CLOCKS_DIFFER_MS, low, high)
        for _ in range(_PAGES):
            rows = self._log.read(shard, at, _ROWS, consistent=True)
            if not rows:
                return high
            for row in rows:
                if row.accepted_ms >= at_ms:
                    return row.first
            at = rows[-1].end
        return self._at_time(shard, at_ms, at, high)

    def _at_time(self, shard: ShardKey, at_ms: int, low: int, high: int) -> int:
        return first_since(lambda at: self._log.read_back(shard, at, 1, consistent=True), at_ms, low, high)

    def begin(self, topic: Topic, group: Group, where: Where, consumer_uid: str = "") -> None:
        """Store the first cursors of a group (or of a broadcast's consumer) on every shard; no cursor at 0 for
        EARLIEST. The log surely begins at 0 while the topic is younger than the shortest retention."""
        if where == EARLIEST and self._clock.now_ms() < topic.created_ms + _SHORTEST_RETENTION_MS:
            return
        for key in cursor_keys(topic, group, consumer_uid):
            offset, segment_at = self.find(topic, key, where)
            first = replace(start_at(offset), segment_at=segment_at)
            # at 0 it spares a broadcast's consumer the look whether it is registered, at its first claim
            if offset or where != EARLIEST:
                self._states.cursors.create(key, first)

    def seek(self, topic: Topic, key: CursorKey, where: Where, places: Places | None = None) -> Cursor:
        """Move a cursor; every lease on it is dropped. `places` keeps what was found in each shard for the next
        consumers of a broadcast; but LATEST is another place by then. Raises NotFound if its group was deleted."""
        place = None if places is None or where == LATEST else places.get(key.shard)
        offset, segment_at = place = place or self.find(topic, key, where)
        if places is not None:
            places[key.shard] = place

        def attempt(state: CursorSnapshot) -> cursor_write.Change | None:
            if state.cursor.is_closed:
                return None
            after = replace(transitions.seek(state.cursor, offset), segment_at=segment_at)
            return cursor_write.replacement(state.cursor, after)

        snapshot = self._states.update(key, attempt)
        if snapshot is None:
            raise NotFound("GROUP_NOT_FOUND", "The group, or the consumer, was deleted just now.")
        return snapshot.cursor

    def end_leases(self, key: CursorKey) -> None:
        """End every lease on a cursor, which keeps its place: a retry lane has none to be moved to."""

        def attempt(state: CursorSnapshot) -> cursor_write.Change | None:
            if not state.cursor.leases:
                return None
            return cursor_write.change(state.cursor, transitions.end_leases(state.cursor))

        self._states.read(key)
        self._states.update(key, attempt)


def all_keys(topic: Topic, group: Group, consumer_uid: str = "") -> list[CursorKey]:
    """The cursor keys of a group (or of a broadcast's consumer), with that of its retry lane."""
    return [*cursor_keys(topic, group, consumer_uid), cursor_key(topic, group, None, consumer_uid)]


# The row that holds an offset, or the last one before it; nothing where there is none.
ReadBack = Callable[[int], Sequence[Segment]]


def first_since(read_back: ReadBack, at_ms: int, low: int, high: int, may_go_on: GoOn = always) -> int:
    """The first segment from `low` on, before `high`, accepted at or after a time; `high` if there is none. By binary
    search: about log2(n) reads. If `may_go_on()` ends the search, the last offset known to be earlier."""
    while low < high and may_go_on():
        middle = (low + high) // 2
        rows = read_back(middle)
        if not rows or rows[0].end <= low:
            low = middle + 1
        elif rows[0].accepted_ms < at_ms:
            low = rows[0].end
        else:
            high = rows[0].first
    return low
