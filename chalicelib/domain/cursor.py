"""A cursor. Its transitions are in `cursor_transitions`, its size in `cursor_size`, its writes in `cursor_write`.

A cursor says what one consumer group (BROADCAST: one consumer) has done with one shard. Every offset from `next` on
was never claimed. Of those below, a lease holds what is under way and `waiting` what comes (again) later; no offset is
in two places. All others are settled, and so is everything below `floor`.

Two kinds of event change a cursor:

* claims and seeks are serialised with one another by `epoch`, which each of them raises by one;
* settle and extend concern one lease and depend on nothing but that lease being there unchanged.

So a settlement never loses a race against a claim, and a lease that has passed on refuses its old holder.

A cursor stays small, whatever is done with it (see `most_bytes`). What is left of a lease or of what waits takes a bit
for each offset where that is shorter than ranges. A claim must leave room for the worst that may become of all
leases. Where the return of a message would still overflow the cursor, the message goes through a retry timer instead
(see `has_room_to_wait`).

A message that nobody has claimed may be changed in the log. The cursor then notes its offset in `amended` and the epoch
rises, in one transaction with the log's row: a claim that read the old message loses, and who reads the offset for this
cursor from then on takes no copy of it that was kept. Notes are never dropped, for a seek may lead back to them; they
stay few by growing together (see `amend`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from . import ranges
from .limits import MAX_OFFSET
from .pull_share import Round
from .ranges import Ranges
from .spans import Span, ranges_of


@dataclass(frozen=True, slots=True)
class Lease:
    """What one claim granted: immutable but for settling (spans shrink) and extending (deadline moves)."""

    token: str
    spans: tuple[Span, ...]
    deadline_ms: int
    owner: str = ""

    def attempts(self) -> dict[int, int]:
        """Offset → attempt number of every delivery the lease still holds."""
        return {offset: s.attempt for s in self.spans for offset in s.offsets()}


@dataclass(frozen=True, slots=True)
class Cursor:
    """One group's position in one shard. `begin` is the first offset it is owed; `segment_at` is the offset
    at which the log segment that holds `next` begins, as far as known (a hint that saves a read). `amended` holds
    the offsets whose messages were changed in the log, and perhaps some around them. `round` says how those that pull
    share the shard. `skipped` counts the offsets that were settled because nobody wants them."""

    floor: int = 0
    next: int = 0
    leases: Mapping[str, Lease] = field(default_factory=dict)
    waiting: tuple[Span, ...] = ()
    epoch: int = 0
    begin: int = 0
    segment_at: int = 0
    amended: Ranges = ()
    round: Round | None = None
    skipped: int = 0

    @property
    def settled(self) -> Ranges:
        """What is settled above the floor."""
        return ranges.subtract(((self.floor, self.next),), ranges_of(unsettled(self)))

    @property
    def is_closed(self) -> bool:
        """Was its group deleted, or its consumer removed?"""
        return self.begin >= MAX_OFFSET

    @property
    def in_flight(self) -> int:
        return sum(s.count for lease in self.leases.values() for s in lease.spans)


class Fate(StrEnum):
    """What a consumer (or a policy) decided about one delivered offset."""

    SUCCESS = "SUCCESS"
    RETRY = "RETRY"  # waits in the cursor for its next attempt
    RETRY_LATER = "RETRY_LATER"  # settled here: a timer carries it on
    RELEASED = "RELEASED"  # nothing was attempted: waits in the cursor under the same number
    DEAD = "DEAD"


RETURNING = (Fate.RETRY, Fate.RELEASED)


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one offset of a lease; `due_ms` only matters where it waits in the cursor."""

    offset: int
    fate: Fate
    due_ms: int = 0


@dataclass(frozen=True, slots=True)
class Selection:
    """What a mode's policy chose to do with the candidates of one claim."""

    granted: tuple[Span, ...] = ()
    passed_over: tuple[Span, ...] = ()  # fresh offsets that must wait for their unit
    settled: Ranges = ()  # filtered, expired, exhausted: settled without a delivery
    next: int = 0  # the new first offset never claimed
    segment_at: int = 0
    skipped: int = 0  # how many of the settled leave nothing: filtered out, cancelled, or a hole


def start_at(offset: int, epoch: int = 0) -> Cursor:
    """A cursor that is owed everything from `offset` on. `epoch` carries on what went before."""
    return Cursor(floor=offset, next=offset, begin=offset, segment_at=offset, epoch=epoch)


CLOSED = start_at(MAX_OFFSET, epoch=MAX_OFFSET)
"""What stands in the place of a cursor whose group was deleted: owed nothing, ever, and younger than any state of it
that somebody may still know."""


def unsettled(cursor: Cursor) -> Iterator[Span]:
    """What is under way and what waits."""
    yield from cursor.waiting
    for lease in cursor.leases.values():
        yield from lease.spans


def fold(cursor: Cursor) -> Cursor:
    """Raise the floor over what is settled without a gap."""
    return replace(cursor, floor=min((s.start for s in unsettled(cursor)), default=cursor.next))


class Position(StrEnum):
    """Where an offset stands in a cursor."""

    NOT_OWED = "NOT_OWED"  # before the place where the group began
    NEW = "NEW"
    RUNNING = "RUNNING"
    RETRYING = "RETRYING"
    SETTLED = "SETTLED"


def position(cursor: Cursor, offset: int) -> tuple[Position, Span | None]:
    """Where the offset stands, and the leased or waiting span that holds it."""
    if offset < cursor.begin:
        return Position.NOT_OWED, None
    if offset >= cursor.next:
        return Position.NEW, None
    for lease in cursor.leases.values():
        for span in lease.spans:
            if span.holds(offset):
                return Position.RUNNING, span
    for span in cursor.waiting:
        if span.holds(offset):
            return (Position.RETRYING if span.attempt > 1 else Position.NEW), span
    return Position.SETTLED, None
