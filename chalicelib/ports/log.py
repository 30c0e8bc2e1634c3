"""The log of a shard: rows that are written once, at the next offset or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..domain.cursor import Cursor
from ..domain.message import Draft
from ..domain.record import DeadLetter
from ..domain.segment import Segment, ShardKey, Tail
from ..domain.timer import Timer
from ..domain.topic import CursorKey
from ..domain.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Pack:
    """Drafts that fit one segment, encoded once. `size` is the stored payload in bytes."""

    drafts: tuple[Draft, ...]
    payload: bytes | str
    size: int


class Rows(list[Segment]):
    """Segments of a shard, in order. `is_end`: nothing was behind them when they were read. Fewer rows than asked for
    do not show that: an answer also ends at a megabyte, or where its bodies fill MAX_LOOK_BYTES."""

    def __init__(self, segments: Iterable[Segment] = (), *, is_end: bool) -> None:
        super().__init__(segments)
        self.is_end = is_end


@dataclass(frozen=True, slots=True)
class DedupEntry:
    """Remembers a dedup id with what it was used for, until `ends_ms`; written in one transaction with the segment."""

    topic_uid: str
    dedup_id: str
    content_hash: str
    message_id: str
    accepted_ms: int
    ends_ms: int

    @property
    def expires_s(self) -> int:
        """When its row may be removed: not before its window ends."""
        return -(-self.ends_ms // 1000)


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """One message under one business key. It is written before the message: an append that fails leaves an entry
    without a message."""

    topic_uid: str
    key: str
    message_id: str
    accepted_ms: int
    expires_s: int

    @property
    def sort_key(self) -> str:
        """Its place among the key's entries: they sort by time."""
        return f"{self.accepted_ms:015d}#{self.message_id}"


@dataclass(frozen=True, slots=True)
class Stored:
    """The segment is in the log."""


@dataclass(frozen=True, slots=True)
class OffsetTaken:
    """Another writer has that offset; `by` is its segment."""

    by: Segment


@dataclass(frozen=True, slots=True)
class DedupHit:
    """Some dedup ids were used before; nothing was written."""

    entries: tuple[DedupEntry, ...]


@dataclass(frozen=True, slots=True)
class AlreadyMoved:
    """Some timers or dead letters to move are gone or were changed (their indexes); nothing was written."""

    indexes: tuple[int, ...]


PutResult = Stored | OffsetTaken | DedupHit | AlreadyMoved


Promotable = Timer | DeadLetter | Transaction


@dataclass(frozen=True, slots=True)
class Moved:
    """A timer that was changed to another time, or cancelled (`cancelled` is the timer as it was). `edits`: how
    often the timer was changed."""

    due_ms: int
    cancelled: Timer | None = None
    edits: int = 0


class Log(Protocol):
    """The sharded log. Offsets are dense; a row is changed by `amend` alone."""

    def pack(self, drafts: Sequence[Draft], *, whole: bool = False) -> Pack:
        """Encode the first of the drafts, as many as fit one segment; with `whole`, all, whatever their size."""
        ...

    def tail(self, shard: ShardKey) -> Tail:
        """The shard's last offset, read consistently, and never below its checkpoint. Two round trips."""
        ...

    def put(
        self,
        shard: ShardKey,
        segment: Segment,
        pack: Pack,
        dedup: Sequence[DedupEntry] = (),
        promotables: Sequence[Promotable] = (),
    ) -> PutResult:
        """Append a segment: store it at its first offset, if no row is there. A row that an earlier try of the same
        request wrote counts as stored.

        `dedup`: entries that are stored in the same transaction. If one of their ids was used before, nothing is
        written (DedupHit).

        `promotables`: what becomes messages of this segment and is removed in the same transaction: a timer, which is
        deleted; a dead letter, whose record then says RETRYING; a transaction, which is then COMMITTED with the
        offset of its draft (the n-th of `promotables` is the n-th message of the segment) and loses its CHECK timer. If
        one of them is gone or has another version, nothing is written (AlreadyMoved).

        A transaction of DynamoDB holds 100 actions: the segment, each dedup id and each timer are one, the others
        are two.
        """
        ...

    def dedup_entry(self, topic_uid: str, dedup_id: str) -> DedupEntry | None:
        """The entry of a dedup id, read consistently; None if it was never used. Its window may be over."""
        ...

    def reserve(self, shard: ShardKey, count: int) -> int | None:
        """Take `count` offsets from the counter of a RESERVED shard; the first. None: no counter is set yet."""
        ...

    def begin_reserving(self, shard: ShardKey, next_offset: int) -> None:
        """Set the counter of a shard that has just turned RESERVED, unless it is set."""
        ...

    def put_tombstone(self, shard: ShardKey, offset: int, accepted_ms: int, expires_s: int) -> Segment:
        """Close a reserved offset that was never written. Returns the row that is there afterwards: the tombstone,
        or the segment that was written meanwhile."""
        ...

    def read(self, shard: ShardKey, first: int, rows: int, *, consistent: bool = False) -> Rows:
        """At most `rows` segments that begin at or after `first`, in order. A read that is not consistent may
        miss the newest."""
        ...

    def read_back(self, shard: ShardKey, last: int, rows: int, *, consistent: bool = False) -> list[Segment]:
        """At most `rows` segments that begin at or before `last`, newest first. None: there are no more. An answer also
        ends at a megabyte, or where its bodies fill MAX_LOOK_BYTES, so fewer do not show that."""
        ...

    def amend(
        self,
        shard: ShardKey,
        old: Segment,
        pack: Pack,
        offset: int,
        cursors: Mapping[CursorKey, Cursor | None],
    ) -> bool:
        """Replace the row `old` by its next edition with the contents of `pack`, and note in each of the cursors
        (None: it does not exist yet and begins at 0) that the message at `offset` was changed. All in one
        transaction.

        False, and nothing is written, if the row is gone or has another edition, or if a cursor has claimed the
        offset, or is not as given. At most MAX_AMENDED_CURSORS cursors.
        """
        ...

    def keep(self, shard: ShardKey, first: int, until_s: int) -> bool:
        """Extend the row's expiry to `until_s` at least. False: the row is gone, or expires later anyway."""
        ...

    def checkpoint(self, shard: ShardKey, tail: Tail) -> None:
        """Store the tail in a row that never expires."""
        ...
