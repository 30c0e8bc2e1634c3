"""What services ask of the world: storage, time, chance. Each port has a memory and a DynamoDB form, and one
contract suite (tests/contract) that both pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from .domain.cursor import Change, Cursor
from .domain.message import Draft
from .domain.segment import Segment, ShardKey, Tail
from .domain.topic import Consumer, CursorKey, Group, Token, Topic


class Clock(Protocol):
    """Time, injected."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...


class Chance(Protocol):
    """Randomness and ids, injected."""

    def below(self, n: int) -> int:
        """A number from 0 to n - 1."""
        ...

    def id(self, chars: int) -> str:
        """A random Crockford base-32 text."""
        ...

    def secret(self) -> bytes:
        """32 bytes nobody can guess."""
        ...


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
class Stored:
    """The segment is in the log."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Another writer has that offset; `by` is what stands there."""

    by: Segment


@dataclass(frozen=True, slots=True)
class Known:
    """Some dedup ids were used before; nothing was written."""

    entries: tuple[DedupEntry, ...]


PutResult = Stored | Taken | Known


class Log(Protocol):
    """The sharded log. Offsets are dense; a row is never changed."""

    def pack(self, drafts: Sequence[Draft]) -> Pack:
        """Encode the first of the drafts, as many as fit one segment."""
        ...

    def tail(self, shard: ShardKey) -> Tail:
        """The shard's last offset, read consistently, and never below its checkpoint. Two round trips."""
        ...

    def put(
        self, shard: ShardKey, segment: Segment, pack: Pack, dedup: Sequence[DedupEntry] = ()
    ) -> PutResult:
        """Put the segment at its first offset if that is free. Our own earlier write counts as stored."""
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

    def checkpoint(self, shard: ShardKey, tail: Tail) -> None:
        """Remember the tail where no expiry reaches it."""
        ...


class Conflict(Enum):
    """A cursor write that found its conditions not met."""

    LOST = "lost"  # certainly not written
    UNKNOWN = "unknown"  # an answer was lost on the way: perhaps written


@dataclass(frozen=True, slots=True)
class Refused:
    """The write was refused; `current` is the cursor as it stands (None: there is none)."""

    why: Conflict
    current: Cursor | None


@dataclass(frozen=True, slots=True)
class Record:
    """A delivery that did not succeed at once. `status` is RETRYING, DEAD or SUCCESS (late)."""

    shard: int
    offset: int
    status: str
    attempts: int
    at_ms: int
    consumer_uid: str = ""
    reason: str | None = None
    last_error: str | None = None
    next_ms: int | None = None


class Cursors(Protocol):
    """One small item per group and shard, changed by conditional writes."""

    def get(self, key: CursorKey, *, consistent: bool = False) -> Cursor | None:
        """The cursor; None where nothing was ever claimed (it then stands at offset 0)."""
        ...

    def create(self, key: CursorKey, cursor: Cursor) -> Cursor:
        """Store a first cursor unless there is one; the one that stands."""
        ...

    def write(
        self, key: CursorKey, change: Change, records: Sequence[Record] = (), *, exists: bool = True
    ) -> Cursor | Refused:
        """Apply a change if its conditions hold, together with delivery records; the cursor afterwards."""
        ...

    def delete(self, keys: Iterable[CursorKey]) -> None:
        """Forget cursors. Harmless where there are none."""
        ...


class Records(Protocol):
    """Delivery records, by group."""

    def get(self, key: CursorKey, offset: int) -> Record | None:
        """The record of one delivery."""
        ...

    def count_dead(self, topic_uid: str, group_uid: str) -> int:
        """How many dead letters the group has."""
        ...


class Control(Protocol):
    """What is set up on purpose. Read often (cached above), written seldom, always conditionally."""

    def topic(self, name: str) -> Topic | None: ...

    def topics(self, after: str | None, limit: int) -> list[Topic]: ...

    def put_topic(self, topic: Topic, old: Topic | None) -> bool:
        """Store if the topic still is `old` (None: absent). False: it is not."""
        ...

    def delete_topic(self, topic: Topic) -> None: ...

    def group(self, topic: Topic, name: str) -> Group | None: ...

    def groups(self, topic: Topic) -> list[Group]: ...

    def put_group(self, topic: Topic, group: Group, old: Group | None) -> bool: ...

    def delete_group(self, topic: Topic, group: Group) -> None: ...

    def consumers(self, topic: Topic, group: Group) -> list[Consumer]: ...

    def put_consumer(self, topic: Topic, group: Group, consumer: Consumer, old: Consumer | None) -> bool: ...

    def delete_consumer(self, topic: Topic, group: Group, consumer: Consumer) -> None: ...

    def token(self, token_id: str) -> Token | None: ...

    def tokens(self, after: str | None, limit: int) -> list[Token]: ...

    def put_token(self, token: Token) -> None: ...

    def delete_token(self, token_id: str) -> bool: ...

    def signing_key(self, proposal: bytes) -> bytes:
        """The stage's signing key; the first caller's proposal becomes it."""
        ...


class Blobs(Protocol):
    """Bodies too large for the log."""

    def put(self, name: str, body: bytes) -> None: ...

    def get(self, name: str) -> bytes | None: ...
