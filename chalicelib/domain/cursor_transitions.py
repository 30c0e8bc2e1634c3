"""The transitions of a cursor by claims, settlements, seeks, edits and time. Pure: cursor + event + now gives a new
cursor."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace

from . import ranges
from .cursor import RETURNING, Cursor, Disposition, Lease, Result, Selection, raise_floor, start_at
from .limits import MAX_AMENDED_RANGES
from .spans import HEAVY, LAPSED_MS, Span, coalesce, in_order, ranges_of, without


def lapse(cursor: Cursor, now_ms: int) -> Cursor:
    """Return the unsettled offsets of overdue leases to `waiting`, due at once (LAPSED_MS); their attempt rises by one.
    What waited in a run for the message before it was not tried, and keeps its attempt.
    The next claim or burial stores it, and notes the attempts as LAPSED; who only looks at a cursor calls it, too."""
    overdue = [lease for lease in cursor.leases.values() if lease.deadline_ms <= now_ms]
    if not overdue:
        return cursor
    returned_spans = [span for lease in overdue for span in _lapsed(lease)]
    live = {t: lease for t, lease in cursor.leases.items() if lease.deadline_ms > now_ms}
    return replace(cursor, leases=live, waiting=coalesce([*cursor.waiting, *returned_spans]))


def _lapsed(lease: Lease) -> Iterator[Span]:
    untried_spans: tuple[Span, ...] = ()
    if lease.run_ms:
        untried_spans = without(lease.spans, ranges.of(lease.begun()))
    tried_spans = without(lease.spans, ranges_of(untried_spans))
    yield from untried_spans
    yield from (replace(s, attempt=s.attempt + 1, due_ms=LAPSED_MS) for s in tried_spans)


def parts_of_run(lease: Lease, named: Container[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Of each unit of a run: its first offsets, as far as all are `named`, and the others behind them."""
    by_unit: defaultdict[str, list[int]] = defaultdict(list)
    for offset, span in in_order(lease.spans):
        by_unit[span.unit].append(offset)
    for offsets in by_unit.values():
        count = next((n for n, offset in enumerate(offsets) if offset not in named), len(offsets))
        yield offsets[:count], offsets[count:]


def in_run(lease: Lease, dispositions: Mapping[int, Disposition]) -> Iterator[tuple[int, list[int]]]:
    """The offsets of a run that are settled by these dispositions, each with those that it gives back untried: all
    behind the first that waits again, or behind the last that did not succeed. What is behind a gap is left out."""
    for named, others in parts_of_run(lease, dispositions):
        for count, offset in enumerate(named, 1):
            is_last = count == len(named) or dispositions[offset] in RETURNING
            gives_back = is_last and dispositions[offset] is not Disposition.SUCCESS
            yield offset, [*named[count:], *others] if gives_back else []
            if is_last:
                break


def end_leases(cursor: Cursor) -> Cursor:
    """End all leases, as if each had lapsed, and raise the epoch: their holders can settle nothing any more."""
    last_ms = max((lease.deadline_ms for lease in cursor.leases.values()), default=0)
    return replace(lapse(cursor, last_ms), epoch=cursor.epoch + 1)


def due_spans(cursor: Cursor, now_ms: int) -> tuple[Span, ...]:
    """The spans of a cursor after `lapse` that may be delivered (again) now, lowest offset first."""
    return tuple(s for s in cursor.waiting if s.due_ms <= now_ms)


def free_units(cursor: Cursor, now_ms: int) -> set[str]:
    """The units of a cursor after `lapse` whose first waiting message may be delivered now: it is due, and no other
    message of its unit is leased."""
    first_spans = {span.unit: span for span in reversed(cursor.waiting)}
    first_dues = {span.unit: span for span in reversed(due_spans(cursor, now_ms))}
    return {unit for unit, span in first_dues.items() if span == first_spans[unit]} - leased_units(cursor)


def leased_counts(cursor: Cursor) -> Counter[str]:
    """How many messages of each unit of a cursor are leased."""
    counts: Counter[str] = Counter()
    for lease in cursor.leases.values():
        for span in lease.spans:
            counts[span.unit] += span.count
    return counts


def full_units(cursor: Cursor, most: int) -> set[str]:
    """The keys of a cursor of which so many messages are leased, or more; none where 0 sets no bound."""
    counts = leased_counts(cursor)
    return {unit for unit, count in counts.items() if most and count >= most and unit not in ("", HEAVY)}


def leased_units(cursor: Cursor) -> set[str]:
    """The units of a cursor of which a message is leased."""
    return {span.unit for lease in cursor.leases.values() for span in lease.spans}


def claim(cursor: Cursor, selection: Selection, token: str, owner: str, deadline_ms: int) -> Cursor:
    """Grant what a policy selected from a cursor after `lapse`, under a new epoch.

    `token` must be new. The caller makes it up, so that it recognises its own write after a lost answer.
    """
    granted_spans = coalesce(selection.granted)
    unavailable_ranges = ranges.normalise([*ranges_of(granted_spans), *selection.settled])
    waiting_spans = without(cursor.waiting, unavailable_ranges) + selection.passed_over
    leases = dict(cursor.leases)
    if granted_spans:
        leases[token] = Lease(token, granted_spans, deadline_ms, owner)
    return raise_floor(
        replace(
            cursor,
            next=max(cursor.next, selection.next),
            segment_at=selection.segment_at if selection.next > cursor.next else cursor.segment_at,
            waiting=coalesce(waiting_spans),
            leases=leases,
            epoch=cursor.epoch + 1,
            skipped=cursor.skipped + selection.skipped,
        )
    )


def settle(cursor: Cursor, token: str, results: Sequence[Result]) -> tuple[Cursor, tuple[Result, ...]]:
    """Apply results to a lease. Results for offsets that the lease does not hold are dropped; the answer lists those
    applied.

    RETRY puts the offset back to `waiting` with the next attempt number, RELEASED with the same; all others settle it.
    """
    lease = cursor.leases.get(token)
    if lease is None:
        return cursor, ()
    spans = {offset: span for span in lease.spans for offset in span.offsets()}
    outcomes = {r.offset: r for r in results if r.offset in spans}
    unsettled_spans = without(lease.spans, ranges.of(outcomes))
    leases = {t: entry for t, entry in cursor.leases.items() if t != token}
    if unsettled_spans:
        leases[token] = replace(lease, spans=coalesce(unsettled_spans))
    returned_spans = coalesce(
        replace(
            spans[r.offset],
            start=r.offset,
            count=1,
            mask=0,
            attempt=spans[r.offset].attempt + (r.disposition is Disposition.RETRY),
            due_ms=r.due_ms,
        )
        for r in outcomes.values()
        if r.disposition in RETURNING
    )
    # Neighbouring entries are not joined here: only a claim may do that, as it depends on the epoch.
    next_cursor = replace(
        cursor, leases=leases, waiting=tuple(sorted(cursor.waiting + returned_spans, key=lambda s: s.start))
    )
    return next_cursor, tuple(outcomes.values())


def extend(cursor: Cursor, token: str, deadline_ms: int) -> Cursor | None:
    """Move a lease's deadline; None if the lease has ended."""
    lease = cursor.leases.get(token)
    if lease is None:
        return None
    return replace(cursor, leases={**cursor.leases, token: replace(lease, deadline_ms=deadline_ms)})


def beside_lane(cursor: Cursor) -> Cursor:
    """Note that the retry lane has leased messages of the shard, and raise the epoch: only claims that look there can
    follow."""
    return replace(cursor, in_lane=1, epoch=cursor.epoch + 1)


def seek(cursor: Cursor, to: int) -> Cursor:
    """Start again at `to`: all leases and waiting offsets are dropped, every message from `to` on is delivered."""
    return replace(start_at(to, cursor.epoch + 1), amended=cursor.amended, in_lane=cursor.in_lane)


def amend(cursor: Cursor, offset: int) -> Cursor | None:
    """Note that the message at `offset` was changed, and raise the epoch; None if the offset has been claimed.

    Ranges below the floor are merged into one, and so are the lowest two if there are too many: a range that is too
    wide only costs reads.
    """
    if cursor.begin <= offset < cursor.next:
        return None
    past = [end for _, end in cursor.amended if end <= cursor.floor]
    older_ranges = [(cursor.amended[0][0], past[-1])] if past else []
    amended_ranges = ranges.normalise([*older_ranges, *cursor.amended, (offset, offset + 1)])
    while len(amended_ranges) > MAX_AMENDED_RANGES:
        amended_ranges = ((amended_ranges[0][0], amended_ranges[1][1]), *amended_ranges[2:])
    return replace(cursor, amended=amended_ranges, epoch=cursor.epoch + 1)


def retry_now(cursor: Cursor, offset: int) -> Cursor | None:
    """Make a waiting offset due at once, and raise the epoch; None if the offset is not waiting for a due time."""
    span = next((s for s in cursor.waiting if s.holds(offset) and s.next_ms), None)
    if span is None:
        return None
    rest = without(cursor.waiting, ((offset, offset + 1),))
    due_span = replace(span, start=offset, count=1, due_ms=0, mask=0)
    return replace(cursor, waiting=coalesce([*rest, due_span]), epoch=cursor.epoch + 1)
