"""The claim/settle algebra: cursor + event + now → new cursor. Pure; storage writes what changed.

A cursor says what one consumer group (BROADCAST: one consumer) has done with one shard. Every offset below
`floor` is settled. Every offset in [floor, next) is in exactly one of three places: `settled`, a lease, or
`waiting`. Every offset from `next` on was never claimed.

Two kinds of event change a cursor:

* claims and seeks are serialised with one another by `epoch`, which each of them raises by one;
* settle and extend concern one lease and depend on nothing but that lease being there unchanged.

So a settlement never loses a race against a claim, and a lease that has passed on refuses its old holder.

A message that nobody has claimed may be changed in the log. The cursor then notes its offset in `amended` and the epoch
rises, in one transaction with the log's row: a claim that read the old message loses, and who reads the offset for this
cursor from then on takes no copy of it that was kept. Notes are never dropped, for a seek may lead back to them; they
stay few by growing together (see `amend`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from . import ranges
from .limits import MAX_AMENDED_RANGES, MAX_OFFSET
from .ranges import Ranges
from .sharing import Round


@dataclass(frozen=True, slots=True)
class Span:
    """A run of `count` offsets from `start` that share their fate.

    `attempt` is the number the next (waiting) or current (leased) delivery has, from 1. `unit` names the unit
    of order (SERIAL only, else empty). `due_ms` is the earliest time of the next delivery, 0 for at once.
    """

    start: int
    count: int = 1
    attempt: int = 1
    unit: str = ""
    due_ms: int = 0

    @property
    def end(self) -> int:
        return self.start + self.count


@dataclass(frozen=True, slots=True)
class Lease:
    """What one claim granted: immutable but for settling (spans shrink) and extending (deadline moves)."""

    token: str
    spans: tuple[Span, ...]
    deadline_ms: int
    owner: str = ""

    def attempts(self) -> dict[int, int]:
        """Offset → attempt number of every delivery the lease still holds."""
        return {offset: s.attempt for s in self.spans for offset in range(s.start, s.end)}


@dataclass(frozen=True, slots=True)
class Cursor:
    """One group's position in one shard. `begin` is the first offset it is owed; `segment_at` is the offset
    at which the log segment that holds `next` begins, as far as known (a hint that saves a read). `amended` holds
    the offsets whose messages were changed in the log, and perhaps some around them. `round` says how those that pull
    share the shard. `skipped` counts the offsets that were settled because nobody wants them."""

    floor: int = 0
    next: int = 0
    settled: Ranges = ()
    leases: Mapping[str, Lease] = field(default_factory=dict)
    waiting: tuple[Span, ...] = ()
    epoch: int = 0
    begin: int = 0
    segment_at: int = 0
    amended: Ranges = ()
    round: Round | None = None
    skipped: int = 0

    @property
    def entries(self) -> int:
        """How many entries the stored item has: what the window bounds."""
        return len(self.settled) + len(self.leases) + len(self.waiting)

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
    LATER = "LATER"  # settled here: a timer carries it on
    BACK = "BACK"  # nothing was attempted: waits in the cursor under the same number
    DEAD = "DEAD"


RETURNING = (Fate.RETRY, Fate.BACK)


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
    """Sort by offset and join neighbours that share attempt, unit and due time."""
    joined: list[Span] = []
    first: Span | None = None  # of the run being joined, which reaches up to `end`
    end = -1
    for span in sorted(spans, key=lambda s: s.start):
        if first and end == span.start and _fate(first) == _fate(span):
            end = span.end
            continue
        if first:
            joined.append(replace(first, count=end - first.start))
        first, end = span, span.end
    return (*joined, replace(first, count=end - first.start)) if first else ()


def _fate(span: Span) -> tuple[int, str, int]:
    return span.attempt, span.unit, span.due_ms


def _without(spans: Iterable[Span], taken: Ranges) -> tuple[Span, ...]:
    return tuple(
        replace(span, start=low, count=high - low)
        for span in spans
        for low, high in ranges.subtract(((span.start, span.end),), taken)
    )


def _ranges_of(spans: Iterable[Span]) -> Ranges:
    return ranges.normalise((s.start, s.end) for s in spans)


def fold(cursor: Cursor) -> Cursor:
    """Raise the floor over what is settled without a gap and forget those ranges."""
    settled = ranges.normalise(cursor.settled)
    floor = cursor.floor
    while settled and settled[0][0] <= floor:
        floor = max(floor, settled[0][1])
        settled = settled[1:]
    return replace(cursor, floor=floor, settled=settled)


def joined(cursor: Cursor) -> Cursor:
    """The cursor with its neighbouring entries joined, as the next claim will store it."""
    return fold(replace(cursor, waiting=coalesce(cursor.waiting)))


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
            settled=ranges.normalise([*cursor.settled, *selection.settled]),
            waiting=coalesce(waiting),
            leases=leases,
            epoch=cursor.epoch + 1,
            skipped=cursor.skipped + selection.skipped,
        )
    )


def settle(cursor: Cursor, token: str, results: Sequence[Result]) -> tuple[Cursor, tuple[Result, ...]]:
    """Apply the results that the lease still holds; the others are refused by being absent from the answer.

    RETRY puts the offset back to `waiting` with the next attempt number, BACK with the same; all others settle it.
    """
    lease = cursor.leases.get(token)
    if lease is None:
        return cursor, ()
    spans = {offset: span for span in lease.spans for offset in range(span.start, span.end)}
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
            attempt=spans[r.offset].attempt + (r.fate is Fate.RETRY),
            due_ms=r.due_ms,
        )
        for r in held.values()
        if r.fate in RETURNING
    )
    done = ranges.of(r.offset for r in held.values() if r.fate not in RETURNING)
    # Neighbouring entries stay apart here: joining them is for claims, which own what they did not grant.
    changed = replace(
        cursor,
        leases=leases,
        settled=tuple(sorted(cursor.settled + done)),
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
    span = next((s for s in cursor.waiting if s.start <= offset < s.end and s.due_ms), None)
    if span is None:
        return None
    rest = _without(cursor.waiting, ((offset, offset + 1),))
    due = replace(span, start=offset, count=1, due_ms=0)
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
            if span.start <= offset < span.end:
                return Position.RUNNING, span
    for span in cursor.waiting:
        if span.start <= offset < span.end:
            return (Position.RETRYING if span.attempt > 1 else Position.NEW), span
    return Position.SETTLED, None


@dataclass(frozen=True, slots=True)
class Change:
    """What a write changes in a stored cursor: entries set and removed, and the entries it depends on.

    Entries are named: a lease by its token, a waiting span and a settled range by their first offset.
    `scalars` is set for claims and seeks only, which depend on the epoch; `expected_leases` are the leases
    whose value must be unchanged. `whole` replaces the item (seek): nothing of the old one stays.
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
    set_settled: Mapping[int, int]
    removed_settled: tuple[int, ...]

    @property
    def entries(self) -> int:
        """How many entries the write names: what an expression's length depends on."""
        touched = (self.expected_leases, self.set_leases, self.removed_leases, self.set_waiting)
        return sum(map(len, (*touched, self.removed_waiting, self.set_settled, self.removed_settled)))


def change(old: Cursor, new: Cursor) -> Change:
    """The smallest write that turns `old` into `new`, with the conditions that make it safe.

    A raised epoch makes it a claim: it depends on the epoch and on the leases it takes over. Otherwise it
    depends on the leases it touches alone.
    """
    serialised = new.epoch != old.epoch
    leases_set = {t: lease for t, lease in new.leases.items() if old.leases.get(t) != lease}
    leases_gone = tuple(t for t in old.leases if t not in new.leases)
    waiting_old, waiting_new = {s.start: s for s in old.waiting}, {s.start: s for s in new.waiting}
    settled_old, settled_new = dict(old.settled), dict(new.settled)
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
        set_waiting={k: s for k, s in waiting_new.items() if waiting_old.get(k) != s},
        removed_waiting=tuple(k for k in waiting_old if k not in waiting_new),
        set_settled={k: end - k for k, end in settled_new.items() if settled_old.get(k) != end},
        removed_settled=tuple(k for k in settled_old if k not in settled_new),
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
        set_settled={start: end - start for start, end in new.settled},
        removed_settled=(),
    )


def holds(change: Change, current: Cursor) -> bool:
    """Do the change's conditions hold against the current cursor?"""
    if change.serialised and current.epoch != change.known_epoch:
        return False
    return all(current.leases.get(t) == lease for t, lease in change.expected_leases.items())


def took(change: Change, current: Cursor) -> bool | None:
    """Is a refused write, whose first answer may have been lost, our own success? None: it cannot be told.

    A claim finds the token it made up, an extension its deadline. A settlement finds the entries it made,
    whatever befell the rest of its lease; only a later claim or seek takes entries away.
    """
    if change.whole:
        return current == change.scalars
    set_there = all(current.leases.get(t) == lease for t, lease in change.set_leases.items())
    if change.serialised:
        return bool(change.set_leases) and set_there
    if not (change.set_settled or change.set_waiting):
        return set_there  # an extension: where it is not there, repeating it does no harm
    if current.epoch == change.known_epoch:
        waiting = {span.start: span for span in current.waiting}
        counts = {start: end - start for start, end in current.settled}
        return change.set_settled.items() <= counts.items() and change.set_waiting.items() <= waiting.items()
    return None if _taken_from(change, current) else False


def _taken_from(change: Change, current: Cursor) -> Ranges:
    """Which of the offsets that a change takes out of leases are in those leases no more."""
    wanted = (
        part
        for token, lease in change.expected_leases.items()
        for part in ranges.subtract(_ranges_of(lease.spans), _ranges_of(_spans(change.set_leases.get(token))))
    )
    held = [span for token in change.expected_leases for span in _spans(current.leases.get(token))]
    return ranges.subtract(wanted, _ranges_of(held))


def _spans(lease: Lease | None) -> tuple[Span, ...]:
    return lease.spans if lease else ()


def apply(current: Cursor, change: Change) -> Cursor:
    """The current cursor after the change (what a store does, told as a function)."""
    if change.whole:
        assert change.scalars is not None
        return change.scalars
    leases = {t: lease for t, lease in current.leases.items() if t not in change.removed_leases}
    waiting = {s.start: s for s in current.waiting if s.start not in change.removed_waiting}
    settled = {start: end for start, end in current.settled if start not in change.removed_settled}
    waiting.update(change.set_waiting)
    settled.update({start: start + count for start, count in change.set_settled.items()})
    scalars = change.scalars or current
    return replace(
        scalars,
        leases={**leases, **change.set_leases},
        waiting=tuple(waiting[k] for k in sorted(waiting)),
        settled=tuple(sorted(settled.items())),
    )
