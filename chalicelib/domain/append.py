"""What goes into the log at once, and how that ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .errors import HeadraceError
from .message import Draft
from .record import DeadLetter
from .segment import Segment
from .timer import Fired, Part, Timer
from .transaction import Transaction


class Pack(NamedTuple):
    """Drafts that fit one segment, encoded once. `size` is the stored payload in bytes."""

    drafts: tuple[Draft, ...]
    payload: bytes | str
    size: int


@dataclass(frozen=True, slots=True)
class DedupEntry:
    """Remembers a dedup id with what it was used for, until `ends_ms`; written in one transaction with the segment.

    `instead_of`: the message whose entry it replaces; None: no message has the id.
    """

    topic_uid: str
    dedup_id: str
    content_hash: str
    message_id: str
    accepted_ms: int
    ends_ms: int
    instead_of: str | None = None

    @property
    def expires_s(self) -> int:
        """When its row may be removed: not before its window ends."""
        return -(-self.ends_ms // 1000)


# The timer of a message that takes another's place, and the entry with which it takes over its dedup id.
Successor = tuple[Timer, DedupEntry]


class KeyEntry(NamedTuple):
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

Promotable = Timer | Part | Fired | DeadLetter | Transaction


@dataclass(frozen=True, slots=True)
class ProduceResult:
    """What became of a draft: the message's id, and where the log has it. A message that waits until `due_ms` has no
    offset yet."""

    id: str
    shard: int | None
    offset: int | None
    accepted_ms: int
    duplicate: bool = False
    due_ms: int | None = None


# What has become of the drafts of a call, in their order; None: nothing yet.
Outcomes = list[ProduceResult | HeadraceError | None]
