"""Cursors, changed only by conditional writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from ..domain.cursor import Cursor
from ..domain.cursor_write import Change, WriteRefused
from ..domain.record import Record
from ..domain.timer import Timer
from ..domain.topic import CursorKey
from ..domain.unreadable import NoteUnreadable, ignore_unreadable


class Cursors(Protocol):
    """One small item per group and shard, changed by conditional writes."""

    def get(self, key: CursorKey, *, consistent: bool = False) -> Cursor | None:
        """The cursor; None where nothing was ever claimed (it then stands at offset 0)."""
        ...

    def of_owner(
        self,
        group_uid: str,
        consumer_uid: str = "",
        *,
        consistent: bool = False,
        note_unreadable: NoteUnreadable = ignore_unreadable,
    ) -> dict[str, Cursor]:
        """All cursors of a group (in a broadcast: of a consumer), by the log's partition key. One query. Each cursor
        has all writes from before the query began, but they are not of one moment; unless `consistent`, they may be
        a moment old. One that cannot be read has everything before it, and `note_unreadable` is told of it."""
        ...

    def create(self, key: CursorKey, cursor: Cursor) -> Cursor:
        """Store a first cursor unless there is one. Returns the stored one."""
        ...

    def write(
        self,
        key: CursorKey,
        change: Change,
        records: Sequence[Record] = (),
        timers: Sequence[Timer] = (),
        *,
        exists: bool = True,
    ) -> Cursor | WriteRefused:
        """Apply a change if its conditions hold, together with delivery records and timers; the cursor afterwards.

        A record lies at `record.of` where that is given (`key` is then a retry lane's), else at `key`.
        """
        ...

    def rebuild(self, key: CursorKey, cursor: Cursor) -> Cursor:
        """Replace a damaged cursor, under an epoch that was never used: that of `cursor` or a higher one. Raises
        Conflict if a later release wrote it, and Unavailable if it can be read after all."""
        ...

    def close(self, keys: Iterable[CursorKey], until_s: int) -> None:
        """Replace cursors, existing or not, by CLOSED: every write that is based on an earlier reading is refused,
        and no new cursor can be created. The rows are deleted some time after `until_s`."""
        ...
