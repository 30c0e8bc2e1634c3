"""Rows that cannot be read: what readers do about them, and how a stream's record of one is passed on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

PassOver = Callable[[str], object]
"""Called for each row that cannot be read, with its place; the reader goes on with the others."""


def leave_out(row: str) -> None:
    """A PassOver that ignores the row: for readers that only show what there is."""


NoteUnreadable = Callable[[str, str], object]
"""Called for each cursor that cannot be read, with the log's partition key, and with its place and the reason."""


def ignore_unreadable(shard: str, row: str) -> None:
    """A NoteUnreadable that ignores the cursor: for readers to whom it has everything before it."""


@dataclass(frozen=True, slots=True)
class UnreadableRecord:
    """A stream's record of a row that is damaged, or that only a later release can read."""

    record: Mapping[str, Any]
