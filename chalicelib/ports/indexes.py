"""Indexes: messages by business key, attempts by message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from ..domain.append import KeyEntry
from ..domain.topic import CursorKey
from ..domain.trace import TraceRow


class Keys(Protocol):
    """Which messages have a business key."""

    def note(self, entries: Sequence[KeyEntry]) -> None:
        """Store entries, one write unit each. Harmless to repeat."""
        ...

    def newest(
        self,
        topic_uid: str,
        key: str,
        from_ms: int | None,
        to_ms: int | None,
        before: str | None,
        limit: int,
    ) -> list[KeyEntry]:
        """The last entries of a key from the position `before` back, newest first; both times belong to the range.
        Fewer than `limit` only at the end; read consistently."""
        ...


class Traces(Protocol):
    """What was tried."""

    def write(self, rows: Sequence[TraceRow]) -> None:
        """Store rows; one write unit for a small one."""
        ...

    def rows_covering(self, key: CursorKey, offset: int, *, consistent: bool = False) -> list[TraceRow]:
        """The rows of a group (all its consumers) that hold an attempt at this offset, in order of time. A read that
        is not consistent may miss the newest."""
        ...

    def newest(self, key: CursorKey, rows_per_read: int) -> Iterator[TraceRow | None]:
        """The rows of a group (all its consumers) on one shard, those of the highest offsets first, read as they are
        needed; None for one that cannot be read. Not consistent: it may miss the newest."""
        ...
