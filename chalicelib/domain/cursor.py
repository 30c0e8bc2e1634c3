"""The claim/settle algebra: cursor + event + now → new cursor. Pure; storage writes what changed.

A cursor says what one consumer group (BROADCAST: one consumer) has done with one shard. Every offset from `next` on
was never claimed. Of those below, a lease holds what is under way and `waiting` what comes (again) later; no offset is
in two places. All others are settled, and so is everything below `floor`.

Two kinds of event change a cursor:

* claims and seeks are serialised with one another by `epoch`, which each of them raises by one;
* settle and extend concern one lease and depend on nothing but that lease being there unchanged.

So a settlement never loses a race against a claim, and a lease that has passed on refuses its old holder.

A cursor stays small, whatever is done with it (see `most_bytes`). What is left of a lease or of what waits takes a bit
for each offset where that is shorter than ranges. A claim must leave room for the worst that may become of all leases;
who gives back what would find no room sends it another way (see `has_room_to_wait`).

A message that nobody has claimed may be changed in the log. The cursor then notes its offset in `amended` and the epoch
rises, in one transaction with the log's row: a claim that read the old message loses, and who reads the offset for this
cursor from then on takes no copy of it that was kept. Notes are never dropped, for a seek may lead back to them; they
stay few by growing together (see `amend`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from . import ranges
from .limits import MAX_AMENDED_RANGES, MAX_CURSOR_BYTES, MAX_OFFSET, MAX_RECEIVE
from .ranges import Ranges
from .sharing import Round

_BYTES_FOR_CLAIMS = (
    MAX_CURSOR_BYTES * 25 // 32
)  # what the worst that may become of all leases may take after a claim,
_BYTES_FOR_RETURNS = (
    MAX_CURSOR_BYTES * 26 // 32
)  # or after something was given back; the rest is for others meanwhile
_BITS = 6  # of a mask in one byte
_RUN_BYTES = 9  # about what one range takes
_RUNS = 8  # so many ranges stay ranges even where a mask is shorter: releases before masks can read them
_CURSOR_BYTES = 350  # keys, numbers and names of attributes; a topic's name has 128 characters
_PART_BYTES = 30  # of a round: of its own, and for each who takes part
_LEASE_BYTES = 22  # the deadline, and what an entry takes anyway
_ENTRY_BYTES = 4
_WAIT_BYTES = 20  # by what an entry that waits for a time is longer than its part of a lease
_LARGEST_ENTRY_BYTES = 220  # of what waits: a mask over MAX_RECEIVE offsets
_UNSEEN_ENTRIES = 4  # that others may always have given back since a cursor was seen
_ONES = re.compile("1+")


@dataclass(frozen=True, slots=True)
class Span:
    """`count` offsets from `start` on that share their fate: a run or, with a `mask`, those whose bits are set in it
    (the lowest is for `start`). Spans with masks may lie between one another.

    `attempt` is the number the next (waiting) or current (leased) delivery has, from 1. `unit` names the unit
    of order (SERIAL only, else empty). `due_ms` is the earliest time of the next delivery, 0 for at once.
    """

    start: int
    count: int = 1
    attempt: int = 1
    unit: str = ""
    due_ms: int = 0
    mask: int = 0

    @property
    def end(self) -> int:
        """Behind the last offset."""
        return self.start + (self.mask.bit_length() or self.count)

    def ranges(self) -> Ranges:
        if not self.mask:
            return ((self.start, self.end),)
        runs = _ONES.finditer(f"{self.mask:b}"[::-1])
        return tuple((self.start + run.start(), self.start + run.end()) for run in runs)

    def offsets(self) -> Iterator[int]:
        return (offset for low, high in self.ranges() for offset in range(low, high))

    def holds(self, offset: int) -> bool:
        at = offset - self.start
        return bool(self.mask >> at & 1) if self.mask and at >= 0 else 0 <= at < self.count


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
        return ranges.subtract(((self.floor, self.next),), _ranges_of(_unsettled(self)))

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


def coalesce(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Sort by offset and join what shares attempt, unit and due time: neighbours to runs, and runs, where there are
    many close to one another, under masks."""
    runs = _runs(spans)
    if len(runs) <= _RUNS:
        return runs
    by_fate: defaultdict[tuple[int, str, int], list[Span]] = defaultdict(list)
    for run in runs:
        by_fate[_fate(run)].append(run)
    masked = (span for alike in by_fate.values() for close in _clusters(alike) for span in _masked(close))
    return tuple(sorted(masked, key=lambda s: s.start))


def _clusters(runs: Sequence[Span]) -> Iterator[list[Span]]:
    """Neighbours that one mask could hold without much emptiness."""
    cluster: list[Span] = []
    for run in runs:
        is_far = cluster and run.start - cluster[-1].end > _RUN_BYTES * _BITS
        if cluster and (is_far or run.end - cluster[0].start > MAX_RECEIVE):
            yield cluster
            cluster = []
        cluster.append(run)
    yield cluster


def _masked(runs: list[Span]) -> list[Span]:
    """The runs under one mask, if that is shorter."""
    first, width = runs[0], runs[-1].end - runs[0].start
    if len(runs) <= _RUNS or len(runs) * _RUN_BYTES <= width // _BITS + _RUN_BYTES:
        return runs
    mask = 0
    for run in runs:
        mask |= ((1 << run.count) - 1) << (run.start - first.start)
    return [replace(first, count=sum(run.count for run in runs), mask=mask)]


def _runs(spans: Iterable[Span]) -> tuple[Span, ...]:
    joined: list[Span] = []
    first: Span | None = None  # of the run being joined, which reaches up to `end`
    end = -1
    for span in sorted(_plain(spans), key=lambda s: s.start):
        if first and end == span.start and _fate(first) == _fate(span):
            end = span.end
            continue
        if first:
            joined.append(replace(first, count=end - first.start))
        first, end = span, span.end
    return (*joined, replace(first, count=end - first.start)) if first else ()


def _plain(spans: Iterable[Span]) -> Iterator[Span]:
    """The same offsets in spans without masks."""
    for span in spans:
        for low, high in span.ranges():
            yield replace(span, start=low, count=high - low, mask=0)


def _fate(span: Span) -> tuple[int, str, int]:
    return span.attempt, span.unit, span.due_ms


def _without(spans: Iterable[Span], taken: Ranges) -> tuple[Span, ...]:
    """What is left of the spans, to be joined anew."""
    return tuple(left for span in spans if (left := _less(span, taken)))


def _less(span: Span, taken: Ranges) -> Span | None:
    bits = span.mask or (1 << span.count) - 1
    for low, high in taken:
        if low < span.end and high > span.start:
            first = max(low, span.start) - span.start
            bits &= ~(((1 << high - span.start - first) - 1) << first)
    if not bits:
        return None
    at = (bits & -bits).bit_length() - 1
    return replace(span, start=span.start + at, count=bits.bit_count(), mask=bits >> at)


def _ranges_of(spans: Iterable[Span]) -> Ranges:
    return ranges.normalise(held for span in spans for held in span.ranges())


def _unsettled(cursor: Cursor) -> Iterator[Span]:
    """What is under way and what waits."""
    yield from cursor.waiting
    for lease in cursor.leases.values():
        yield from lease.spans


def fold(cursor: Cursor) -> Cursor:
    """Raise the floor over what is settled without a gap."""
    return replace(cursor, floor=min((s.start for s in _unsettled(cursor)), default=cursor.next))


def most_bytes(cursor: Cursor) -> int:
    """About the bytes its stored item takes at most, whatever becomes of what is under way: settled or given back in
    any order, or due at different times where each keeps its place."""
    leases = (
        len(lease.token) + len(lease.owner) + _LEASE_BYTES + sum(_bytes(s) + _growth(s) for s in lease.spans)
        for lease in cursor.leases.values()
    )
    amended = sum(len(f"{low}+{high - low}") + 1 for low, high in cursor.amended)
    shared = _PART_BYTES * (len(cursor.round.parts) + 1) if cursor.round else 0
    return (
        _CURSOR_BYTES + shared + amended + sum(leases) + sum(_bytes(s) + _ENTRY_BYTES for s in cursor.waiting)
    )


def _bytes(span: Span) -> int:
    mask = span.mask.bit_length() // _BITS + 2 if span.mask else len(str(span.count)) + 1
    due = len(str(span.due_ms)) + 1 if span.due_ms else 0
    return len(str(span.start)) + mask + len(str(span.attempt)) + len(span.unit) + due + 3


def _growth(span: Span) -> int:
    """By how much a leased span may grow: by a mask or, where it is one of a unit, by a time to wait for."""
    if span.unit:  # a claim takes one message of each
        return _WAIT_BYTES
    return 0 if span.mask or span.count <= _RUNS else (span.end - span.start) // _BITS + _RUN_BYTES


def is_full(cursor: Cursor) -> bool:
    """Must something be settled before more can be claimed? Not where nothing is under way: what waits must move."""
    return bool(cursor.leases) and most_bytes(cursor) > _BYTES_FOR_CLAIMS


def has_room(before: Cursor, after: Cursor, granted: int) -> bool:
    """May an expired cursor become this by a claim of so many? By one in any case, where nothing is under way."""
    return most_bytes(after) <= _BYTES_FOR_CLAIMS or (granted == 1 and not before.leases)


def has_room_to_wait(cursor: Cursor) -> bool:
    """May a cursor become this by giving back? Leases of units (SERIAL) have left room for it."""
    return most_bytes(cursor) <= _BYTES_FOR_RETURNS


def _unseen(old: Cursor, new: Cursor) -> int:
    """How many entries may wait at most when the change is written: what others have given back since `old` was seen
    must fit as well."""
    room = (_BYTES_FOR_RETURNS - most_bytes(new)) // _LARGEST_ENTRY_BYTES
    return len(old.waiting) + max(_UNSEEN_ENTRIES, room)


def expire(cursor: Cursor, now_ms: int) -> Cursor:
    """Return the unsettled offsets of overdue leases to `waiting`; their attempt rises by one."""
    overdue = [lease for lease in cursor.leases.values() if lease.deadline_ms <= now_ms]
    if not overdue:
        return cursor
    returned = [replace(s, attempt=s.attempt + 1, due_ms=0) for lease in overdue for s in lease.spans]
    kept = {t: lease for t, lease in cursor.leases.items() if lease.deadline_ms > now_ms}
    return replace(cursor, leases=kept, waiting=coalesce([*cursor.waiting, *returned]))


def returned(cursor: Cursor, now_ms: int) -> tuple[Span, ...]:
    """The spans of an expired cursor that may be delivered (again) now, lowest offset first."""
    return tuple(s for s in cursor.waiting if s.due_ms <= now_ms)


def claim(cursor: Cursor, selection: Selection, token: str, owner: str, deadline_ms: int) -> Cursor:
    """Grant what a policy selected from an expired cursor, under a new epoch.

    `token` must be new: whoever asks makes it up, so that it recognises its own write after a lost answer.
    """
    gone = ranges.normalise([*_ranges_of(selection.granted), *selection.settled])
    waiting = _without(cursor.waiting, gone) + selection.passed_over
    leases = dict(cursor.leases)
    if selection.granted:
        leases[token] = Lease(token, coalesce(selection.granted), deadline_ms, owner)
    return fold(
        replace(
            cursor,
            next=max(cursor.next, selection.next),
            segment_at=selection.segment_at if selection.next > cursor.next else cursor.segment_at,
            waiting=coalesce(waiting),
            leases=leases,
            epoch=cursor.epoch + 1,
            skipped=cursor.skipped + selection.skipped,
        )
    )


def settle(cursor: Cursor, token: str, results: Sequence[Result]) -> tuple[Cursor, tuple[Result, ...]]:
    """Apply the results that the lease still holds; the others are refused by being absent from the answer.

    RETRY puts the offset back to `waiting` with the next attempt number, RELEASED with the same; all others settle it.
    """
    lease = cursor.leases.get(token)
    if lease is None:
        return cursor, ()
    spans = {offset: span for span in lease.spans for offset in span.offsets()}
    held = {r.offset: r for r in results if r.offset in spans}
    left = _without(lease.spans, ranges.of(held))
    leases = {t: entry for t, entry in cursor.leases.items() if t != token}
    if left:
        leases[token] = replace(lease, spans=coalesce(left))
    returning = coalesce(
        replace(
            spans[r.offset],
            start=r.offset,
            count=1,
            mask=0,
            attempt=spans[r.offset].attempt + (r.fate is Fate.RETRY),
            due_ms=r.due_ms,
        )
        for r in held.values()
        if r.fate in RETURNING
    )
    # Neighbouring entries stay apart here: joining them is for claims, which own what they did not grant.
    changed = replace(
        cursor,
        leases=leases,
        waiting=tuple(sorted(cursor.waiting + returning, key=lambda s: s.start)),
    )
    return changed, tuple(held.values())


def extend(cursor: Cursor, token: str, deadline_ms: int) -> Cursor | None:
    """Move a lease's deadline; None where the lease has passed on."""
    lease = cursor.leases.get(token)
    if lease is None:
        return None
    return replace(cursor, leases={**cursor.leases, token: replace(lease, deadline_ms=deadline_ms)})


def seek(cursor: Cursor, to: int) -> Cursor:
    """Begin again at `to`: all leases are void, nothing waits, everything from `to` on is owed."""
    return replace(start_at(to, cursor.epoch + 1), amended=cursor.amended)


def rebuilt(to: int, end: int, now_ms: int) -> Cursor:
    """What takes the place of a cursor that is damaged, sought to `to` on a log that ends before `end`.

    Its epoch is one that no cursor reaches by claims. What was amended is not known any more: everything may be."""
    return replace(start_at(to, epoch=now_ms), amended=((0, end),) if end else ())


def rebuilt_lane(entries: Sequence[Span], end: int, now_ms: int) -> Cursor:
    """What takes the place of a retry lane's cursor that is damaged, where just these entries are not settled: they
    wait. Where they are more than a cursor has room for, it goes on with all that lie behind."""
    fit = list(entries)
    while True:
        following = entries[len(fit)].start if len(fit) < len(entries) else end
        cursor = fold(replace(start_at(following, epoch=now_ms), begin=0, waiting=coalesce(fit)))
        if has_room_to_wait(cursor):
            return cursor
        fit = fit[: len(fit) // 2]


def amend(cursor: Cursor, offset: int) -> Cursor | None:
    """Note that the message at `offset` is another now, under a new epoch; None where it has been claimed.

    What lies below the floor becomes one range, and so do the lowest two where there are too many: a range that is
    too wide only costs reads.
    """
    if cursor.begin <= offset < cursor.next:
        return None
    past = [end for _, end in cursor.amended if end <= cursor.floor]
    joined = [(cursor.amended[0][0], past[-1])] if past else []
    amended = ranges.normalise([*joined, *cursor.amended, (offset, offset + 1)])
    while len(amended) > MAX_AMENDED_RANGES:
        amended = ((amended[0][0], amended[1][1]), *amended[2:])
    return replace(cursor, amended=amended, epoch=cursor.epoch + 1)


def hurry(cursor: Cursor, offset: int) -> Cursor | None:
    """Make a waiting offset due at once, under a new epoch; None where it does not wait for a time."""
    span = next((s for s in cursor.waiting if s.holds(offset) and s.due_ms), None)
    if span is None:
        return None
    rest = _without(cursor.waiting, ((offset, offset + 1),))
    due = replace(span, start=offset, count=1, due_ms=0, mask=0)
    return replace(cursor, waiting=coalesce([*rest, due]), epoch=cursor.epoch + 1)


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


@dataclass(frozen=True, slots=True)
class Change:
    """What a write changes in a stored cursor: entries set and removed, and the entries it depends on.

    Entries are named: a lease by its token, a waiting span by its first offset. `scalars` is set for claims and seeks
    only, which depend on the epoch; `expected_leases` are the leases whose value must be unchanged. Where
    `most_waiting` is given, no more entries may wait in the stored cursor. `whole` replaces the item (seek): nothing
    of the old one stays.
    """

    before: Cursor
    after: Cursor
    known_epoch: int
    serialised: bool
    expected_leases: Mapping[str, Lease]
    scalars: Cursor | None
    whole: bool
    set_leases: Mapping[str, Lease]
    removed_leases: tuple[str, ...]
    set_waiting: Mapping[int, Span]
    removed_waiting: tuple[int, ...]
    most_waiting: int | None = None

    @property
    def entries(self) -> int:
        """How many entries the write names: what an expression's length depends on."""
        touched = (self.expected_leases, self.set_leases, self.removed_leases, self.set_waiting)
        return sum(map(len, (*touched, self.removed_waiting)))


def change(old: Cursor, new: Cursor) -> Change:
    """The smallest write that turns `old` into `new`, with the conditions that make it safe.

    A raised epoch makes it a claim: it depends on the epoch and on the leases it takes over. Otherwise it
    depends on the leases it touches alone.
    """
    serialised = new.epoch != old.epoch
    leases_set = {t: lease for t, lease in new.leases.items() if old.leases.get(t) != lease}
    leases_gone = tuple(t for t in old.leases if t not in new.leases)
    waiting_old, waiting_new = {s.start: s for s in old.waiting}, {s.start: s for s in new.waiting}
    waiting_set = {k: s for k, s in waiting_new.items() if waiting_old.get(k) != s}
    return Change(
        before=old,
        after=new,
        known_epoch=old.epoch,
        serialised=serialised,
        expected_leases={t: old.leases[t] for t in (*leases_set, *leases_gone) if t in old.leases},
        scalars=new if serialised else None,
        whole=False,
        set_leases=leases_set,
        removed_leases=leases_gone,
        set_waiting=waiting_set,
        removed_waiting=tuple(k for k in waiting_old if k not in waiting_new),
        most_waiting=_unseen(old, new) if serialised or waiting_set else None,
    )


def replacement(old: Cursor, new: Cursor) -> Change:
    """The write that puts `new` in the place of `old` whole, if no claim or seek came between."""
    return Change(
        before=old,
        after=new,
        known_epoch=old.epoch,
        serialised=True,
        expected_leases={},
        scalars=new,
        whole=True,
        set_leases=new.leases,
        removed_leases=(),
        set_waiting={s.start: s for s in new.waiting},
        removed_waiting=(),
    )


def holds(change: Change, current: Cursor) -> bool:
    """Do the change's conditions hold against the current cursor?"""
    if change.serialised and current.epoch != change.known_epoch:
        return False
    if change.most_waiting is not None and len(current.waiting) > change.most_waiting:
        return False
    return all(current.leases.get(t) == lease for t, lease in change.expected_leases.items())


def took(change: Change, current: Cursor) -> bool | None:
    """Is a refused write, whose first answer may have been lost, our own success? None: it cannot be told.

    A claim finds the token it made up, an extension its deadline. A settlement finds its lease without what it took
    out, and what it gave back among what waits, whatever befell the rest of its lease; only a later claim or seek
    takes that away.
    """
    if change.whole:
        return current == change.scalars
    set_there = all(current.leases.get(t) == lease for t, lease in change.set_leases.items())
    if change.serialised:
        return bool(change.set_leases) and set_there
    gone = _taken_by(change)
    if not gone:
        return set_there  # an extension: where it is not there, repeating it does no harm
    held = [span for token in change.expected_leases for span in _spans(current.leases.get(token))]
    gone_there = ranges.subtract(gone, _ranges_of(held))
    if current.epoch == change.known_epoch:
        waiting = {span.start: span for span in current.waiting}
        settled = ranges.subtract(gone, _ranges_of(change.set_waiting.values()))
        settled_there = ranges.subtract(settled, _ranges_of(current.waiting))
        given_back = change.set_waiting.items() <= waiting.items()
        return gone_there == gone and given_back and settled_there == settled
    return None if gone_there else False


def _taken_by(change: Change) -> Ranges:
    """The offsets that a change takes out of leases."""
    return ranges.normalise(
        part
        for token, lease in change.expected_leases.items()
        for part in ranges.subtract(_ranges_of(lease.spans), _ranges_of(_spans(change.set_leases.get(token))))
    )


def _spans(lease: Lease | None) -> tuple[Span, ...]:
    return lease.spans if lease else ()


def apply(current: Cursor, change: Change) -> Cursor:
    """The current cursor after the change (what a store does, told as a function)."""
    if change.whole:
        assert change.scalars is not None
        return change.scalars
    leases = {t: lease for t, lease in current.leases.items() if t not in change.removed_leases}
    waiting = {s.start: s for s in current.waiting if s.start not in change.removed_waiting}
    waiting.update(change.set_waiting)
    scalars = change.scalars or current
    return replace(
        scalars,
        leases={**leases, **change.set_leases},
        waiting=tuple(waiting[k] for k in sorted(waiting)),
    )
