"""ports.Cursors in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...domain.cursor import CLOSED, Cursor
from ...domain.cursor_write import Change, apply, holds
from ...domain.errors import unavailable
from ...domain.record import Record
from ...domain.timer import Timer
from ...domain.topic import CursorKey
from ...ports.cursors import NoteUnreadable, RefusalReason, WriteRefused, ignore_unreadable
from .tables import MemoryTables, check_actions


class MemoryCursors:
    """ports.Cursors as a dict."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables
        self._lock = tables.lock
        self._items = tables.cursors
        self._closed_until_s: dict[CursorKey, int] = {}

    def get(self, key: CursorKey, *, consistent: bool = False) -> Cursor | None:
        with self._lock:  # a transaction is seen whole or not at all
            return self._items.get(key)

    def of_owner(
        self,
        group_uid: str,
        consumer_uid: str = "",
        *,
        consistent: bool = False,
        note_unreadable: NoteUnreadable = ignore_unreadable,
    ) -> dict[str, Cursor]:
        with self._lock:
            return {
                str(key.shard): cursor
                for key, cursor in self._items.items()
                if (key.group_uid, key.consumer_uid) == (group_uid, consumer_uid)
            }

    def create(self, key: CursorKey, cursor: Cursor) -> Cursor:
        with self._lock:
            return self._items.setdefault(key, cursor)

    def write(
        self,
        key: CursorKey,
        change: Change,
        records: Sequence[Record] = (),
        timers: Sequence[Timer] = (),
        *,
        exists: bool = True,
    ) -> Cursor | WriteRefused:
        check_actions(1 + sum(record.actions for record in records) + len(timers))
        with self._lock:
            current = self._items.get(key)
            if (current is not None) != exists or (current is not None and not holds(change, current)):
                return WriteRefused(RefusalReason.LOST, current)
            self._items[key] = apply(current or Cursor(), change)
            self._tables.put_records(key, records)
            self._tables.put_timers(timers)
            return self._items[key]

    def rebuild(self, key: CursorKey, cursor: Cursor) -> Cursor:
        raise unavailable("The cursor can be read.")  # here nothing is damaged

    def close(self, keys: Iterable[CursorKey], until_s: int) -> None:
        with self._lock:
            for key in keys:
                self._items[key] = CLOSED
                self._closed_until_s[key] = until_s

    def drop_expired(self, now_s: int) -> None:
        """Delete expired rows, as DynamoDB's TTL does."""
        with self._lock:
            for key, until_s in list(self._closed_until_s.items()):
                if until_s <= now_s:
                    del self._items[key], self._closed_until_s[key]
