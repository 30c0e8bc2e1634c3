"""The log of a shard: rows that are written once, at the next offset or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class DedupEntry:
    """Remembers a dedup id with what it was used for; written in one transaction with the segment."""

    topic_uid: str
    dedup_id: str
    content_hash: str
    message_id: str
    accepted_ms: int
    expires_s: int


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """Says that a message has a business key. Written before the message: one that lost its race leaves entries of
    a message that never was."""

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
    """A timer that is no longer where its id says: due at another time, or cancelled (then as it was). `edits` are
    the timer's: two that led to one time at different moments are different."""

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
        moved: Sequence[Promotable] = (),
    ) -> PutResult:
        """Put the segment at its first offset if that is free. Our own earlier write counts as stored.

        `moved` go in the same transaction: a timer; a dead letter of just this version (its record then says
        RETRYING, from the segment's time on); or a transaction of just this version (then COMMITTED at the place of
        its draft, which has the same number among `moved` and in the segment), with the CHECK timer it knows of. A
        transaction of the store holds 100 actions: a timer is one, the others are two.
        """
        ...

    def dedup_entry(self, topic_uid: str, dedup_id: str) -> DedupEntry | None:
        """What a dedup id was used for; its window may be over. Read consistently."""
        ...

    def reserve(self, shard: ShardKey, count: int) -> int | None:
        """Take `count` offsets from the counter of a RESERVED shard; the first. None: no counter is set yet."""
        ...

    def begin_reserving(self, shard: ShardKey, following: int) -> None:
        """Set the counter of a shard that has just turned RESERVED, unless it is set."""
        ...

    def put_tombstone(self, shard: ShardKey, offset: int, accepted_ms: int, expires_s: int) -> Segment:
        """Close one reserved offset nobody wrote; what stands there afterwards."""
        ...

    def read(self, shard: ShardKey, first: int, rows: int, *, consistent: bool = False) -> list[Segment]:
        """At most `rows` segments that begin at or after `first`, in order. A read that is not consistent may
        miss the newest."""
        ...

    def read_back(self, shard: ShardKey, last: int, rows: int, *, consistent: bool = False) -> list[Segment]:
        """At most `rows` segments that begin at or before `last`, newest first."""
        ...

    def amend(
        self,
        shard: ShardKey,
        old: Segment,
        pack: Pack,
        offset: int,
        cursors: Mapping[CursorKey, Cursor | None],
    ) -> bool:
        """Put `pack` into the row that stands as `old`, as its next edition, and note in every one of the cursors
        (None: there is none; it then begins at 0) that the message at `offset` was amended: one transaction.

        False, and nothing was written: the row is gone or another edition, a cursor has claimed the offset or other
        notes than these, or came or went. At most MAX_AMENDED_CURSORS cursors.
        """
        ...

    def keep(self, shard: ShardKey, first: int, until_s: int) -> bool:
        """Let the row that begins at `first` live until then at least. False: it is gone, or lives longer anyway."""
        ...

    def checkpoint(self, shard: ShardKey, tail: Tail) -> None:
        """Remember the tail where no expiry reaches it."""
        ...
