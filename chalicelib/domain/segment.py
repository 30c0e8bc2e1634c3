"""A segment: one row of the log, holding the messages of one append at consecutive offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from . import ids
from .limits import RETENTION_GRACE
from .message import DeadReason, Draft, Message

_GRACE_S = RETENTION_GRACE // timedelta(seconds=1)


class Allocation(StrEnum):
    """How writers get the offsets of a shard: by a conditional put at the next one, or from a counter. Never both."""

    OPTIMISTIC = "o"
    RESERVED = "r"


@dataclass(frozen=True, slots=True)
class ShardKey:
    """One shard of one topic. `topic_uid` distinguishes a topic from an earlier one of the same name."""

    topic: str
    topic_uid: str
    shard: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.topic_uid}/{self.shard}"


@dataclass(frozen=True, slots=True)
class Segment:
    """`drafts` at offsets `first` … `first + count - 1`. A tombstone closes a hole: `count` 1, no drafts.

    `edition` rises whenever a message in it is changed. `by` is the id of the token that wrote it. `planned_s` is its
    original expiry, if it is kept for longer.
    """

    first: int
    count: int
    request_id: str
    accepted_ms: int
    expires_s: int
    drafts: tuple[Draft, ...] = ()
    allocation: Allocation = Allocation.OPTIMISTIC
    edition: int = 0
    by: str = ""
    planned_s: int = 0

    @property
    def ends_ms(self) -> int:
        """The end of the retention under which it was written; the row itself expires later, by the grace period
        (rounded up to a second)."""
        return ((self.planned_s or self.expires_s) - _GRACE_S + 1) * 1000

    @property
    def is_undecodable(self) -> bool:
        """Can its messages not be read?"""
        return any(draft.dead_reason == DeadReason.UNDECODABLE for draft in self.drafts)

    @property
    def end(self) -> int:
        """The offset after its last message."""
        return self.first + self.count

    def message(self, shard: int, offset: int) -> Message | None:
        """The message at `offset`; None in a tombstone."""
        if not self.drafts:
            return None
        draft = self.drafts[offset - self.first]
        id = draft.id or ids.message_id(self.request_id, shard, offset)
        return Message(id, shard, offset, self.accepted_ms, draft, self.by, self.ends_ms)


class Rows(list[Segment]):
    """Segments of a shard, in order. `is_end`: nothing was behind them when they were read. Fewer rows than asked for
    do not show that: an answer also ends at a megabyte, or where its bodies fill MAX_LOOK_BYTES."""

    def __init__(self, segments: Iterable[Segment] = (), *, is_end: bool) -> None:
        super().__init__(segments)
        self.is_end = is_end


class Written(NamedTuple):
    """A row of the log as a write left it."""

    shard: ShardKey
    segment: Segment


class UnreadableRecord(NamedTuple):
    """A stream's record of a row that cannot be read."""

    record: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tail:
    """The last offset of a shard (-1 where it never had one) and how offsets are taken there. `accepted_ms` is its last
    row's, 0 if no row is left; it is ignored when tails are compared."""

    offset: int
    allocation: Allocation = Allocation.OPTIMISTIC
    accepted_ms: int = field(default=0, compare=False)
