"""A cursor. Its transitions are in `cursor_transitions`, its size in `cursor_size`, its writes in `cursor_write`.

A cursor says what one consumer group (BROADCAST: one consumer) has done with one shard. Offsets from `next` on have
never been claimed. Below `next`, an offset that is being processed is in a lease, and an offset to be delivered (again)
later is in `waiting`; no offset is in both. All other offsets below `next` are settled, and so are all below `floor`.

Two kinds of event change a cursor:

* claims and seeks are serialised by `epoch`: each of them raises it by one;
* settle and extend concern one lease and depend on nothing but that lease being there unchanged.

So a settlement never loses a race against a claim, and the holder of a lease that has ended can no longer settle.

The size of a cursor is bounded (see `most_bytes`). The offsets of a lease or of a waiting span are stored as ranges, or
as a bit mask where that is shorter. A claim must leave space for the largest form that the existing leases can take.
Where the return of a message would still overflow the cursor, the message goes through a retry timer instead (see
`has_room_for_returns`).

A message that nobody has claimed may be changed in the log. The cursor then notes its offset in `amended` and the epoch
rises, in one transaction with the log's row: a claim that read the old message fails, and later reads of the offset for
this cursor use no cached copy. Noted offsets are never removed, since a seek may go back to them; they stay few because
neighbouring ranges are merged (see `amend`).
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

# In the token of a lease that was pulled. The token says so itself, since a consumer may be removed, or be called
# from now on, or not be known yet, while its lease stands.
PULLED = "-"
# The last character of the token of a run (`.30=`: a lease of 30 seconds): several messages of a unit, which are
# processed and settled in their order.
RUN = "="


@dataclass(frozen=True, slots=True)
class Lease:
    """What one claim granted: immutable but for settling (spans shrink) and extending (deadline moves). When it began
    is not kept."""

    token: str
    spans: tuple[Span, ...]
    deadline_ms: int
    owner: str = ""

    @property
    def is_pulled(self) -> bool:
        """Was it granted to a consumer that pulls? Such a lease takes no slots of `max_in_flight`."""
        return PULLED in self.token

    @property
    def run_ms(self) -> int:
        """Of a run: how long it lasts from the settlement of a part of it on; 0 for other leases."""
        return int(self.token[:-1].rpartition(".")[2]) * 1000 if self.token.endswith(RUN) else 0

    @property
    def slots(self) -> int:
        """How many of its messages may be in processing at once."""
        return len({s.unit for s in self.spans}) if self.run_ms else sum(s.count for s in self.spans)

    def attempts(self) -> dict[int, int]:
        """Offset → attempt number of every delivery the lease still holds."""
        return {offset: s.attempt for s in self.spans for offset in s.offsets()}

    def begun(self) -> dict[int, int]:
        """As `attempts`, but of a run only the first message of each unit: those behind it wait for it."""
        if not self.run_ms:
            return self.attempts()
        firsts = {span.unit: span for span in sorted(self.spans, key=lambda s: -s.start)}
        return {span.start: span.attempt for span in firsts.values()}


@dataclass(frozen=True, slots=True)
class Cursor:
    """One group's position in one shard. `begin` is the first offset the group gets; `segment_at` is the offset at
    which the log segment that holds `next` begins, as far as known (a hint that saves a read). `amended` holds the
    offsets whose messages were changed in the log, and perhaps some around them. `round` records how pull consumers
    share the shard. `skipped` counts the offsets that were settled without a delivery because the group does not want
    them. `in_lane` is 1 while the retry lane may have leased messages of this shard, which count for
    `key_concurrency`."""

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
    in_lane: int = 0

    @property
    def settled(self) -> Ranges:
        """The settled offsets above the floor."""
        return ranges.subtract(((self.floor, self.next),), ranges_of(unsettled(self)))

    @property
    def is_closed(self) -> bool:
        """Was its group deleted, or its consumer removed?"""
        return self.begin >= MAX_OFFSET

    @property
    def in_flight(self) -> int:
        """How many messages its leases hold."""
        return sum(s.count for lease in self.leases.values() for s in lease.spans)

    def backlog(self, tail: int) -> int:
        """How many messages up to offset `tail` are not settled: those never claimed, leased, and waiting."""
        return max(0, tail + 1 - self.next) + sum(span.count for span in unsettled(self))


class Disposition(StrEnum):
    """What settling does with one leased offset, as a consumer or the group's policy decided. The term is AMQP's."""

    SUCCESS = "SUCCESS"
    RETRY = "RETRY"  # waits in the cursor for its next attempt
    RETRY_LATER = "RETRY_LATER"  # settled here: a retry timer takes over
    RELEASED = "RELEASED"  # no consumer was given it: waits in the cursor under the same number
    DEAD = "DEAD"


RETURNING = (Disposition.RETRY, Disposition.RELEASED)


@dataclass(frozen=True, slots=True)
class Result:
    """The disposition of one offset of a lease; `due_ms` is used only if the offset waits in the cursor."""

    offset: int
    disposition: Disposition
    due_ms: int = 0


@dataclass(frozen=True, slots=True)
class Selection:
    """What a mode's policy chose to do with the candidates of one claim."""

    granted: tuple[Span, ...] = ()
    passed_over: tuple[Span, ...] = ()  # fresh offsets that must wait for their unit
    settled: Ranges = ()  # filtered, expired, exhausted: settled without a delivery
    next: int = 0  # the new first offset never claimed
    segment_at: int = 0
    skipped: int = 0  # how many of the settled are filtered out, cancelled, or a hole


def start_at(offset: int, epoch: int = 0) -> Cursor:
    """A cursor that starts at `offset`. `epoch` continues that of the cursor before it."""
    return Cursor(floor=offset, next=offset, begin=offset, segment_at=offset, epoch=epoch)


# Replaces the cursor of a deleted group: it has no messages, and its epoch is higher than any that a process may
# still know.
CLOSED = start_at(MAX_OFFSET, epoch=MAX_OFFSET)


def unsettled(cursor: Cursor) -> Iterator[Span]:
    """The leased spans and the waiting ones."""
    yield from cursor.waiting
    for lease in cursor.leases.values():
        yield from lease.spans


def raise_floor(cursor: Cursor) -> Cursor:
    """Raise the floor over the settled offsets directly above it."""
    return replace(cursor, floor=min((s.start for s in unsettled(cursor)), default=cursor.next))


class OffsetState(StrEnum):
    """What a cursor says of one offset. SETTLED is settled for the cursor: its delivery may go on in the retry lane."""

    NOT_OWED = "NOT_OWED"  # before the place where the group began
    NEW = "NEW"
    RUNNING = "RUNNING"
    RETRYING = "RETRYING"
    SETTLED = "SETTLED"


def offset_state(cursor: Cursor, offset: int) -> tuple[OffsetState, Span | None]:
    """The offset's state, and the leased or waiting span that holds it."""
    if offset < cursor.begin:
        return OffsetState.NOT_OWED, None
    if offset >= cursor.next:
        return OffsetState.NEW, None
    for lease in cursor.leases.values():
        for span in lease.spans:
            if span.holds(offset):
                return OffsetState.RUNNING, span
    for span in cursor.waiting:
        if span.holds(offset):
            return (OffsetState.RETRYING if span.attempt > 1 else OffsetState.NEW), span
    return OffsetState.SETTLED, None
