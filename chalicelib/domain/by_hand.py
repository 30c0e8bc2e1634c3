"""The transitions of a cursor by a person: one delivery is ended or gets another time, or all are skipped. Each is made
of those in `cursor_transitions`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from . import cursor_transitions as transitions
from . import ranges
from .cursor import Cursor, Disposition, Result, Selection, unsettled
from .spans import Span, coalesce, ranges_of, without


def end(cursor: Cursor, offset: int, ahead: Selection) -> Cursor:
    """Settle one offset that is not settled. A lease loses it as by a settlement; otherwise the epoch rises as by a
    claim. `ahead` says what becomes of offsets before it that were never claimed."""
    if token := token_of(cursor, offset):
        return transitions.settle(cursor, token, [Result(offset, Disposition.DEAD)])[0]
    settled = ranges.normalise([*ahead.settled, (offset, offset + 1)])
    return transitions.claim(cursor, replace(ahead, settled=settled), "", "", 0)


def postpone(cursor: Cursor, offset: int, due_ms: int) -> Cursor:
    """Give an offset that waits, or whose lease has ended, another due time."""
    if token := token_of(cursor, offset):
        return transitions.settle(cursor, token, [Result(offset, Disposition.RETRY, due_ms)])[0]
    span = next(span for span in cursor.waiting if span.holds(offset))
    rest = without(cursor.waiting, ((offset, offset + 1),))
    due_span = replace(span, start=offset, count=1, due_ms=due_ms, mask=0)
    return replace(cursor, waiting=coalesce([*rest, due_span]), epoch=cursor.epoch + 1)


def token_of(cursor: Cursor, offset: int) -> str | None:
    """The token of the lease that holds the offset, also of one that has ended and was not taken back."""
    held = (token for token, lease in cursor.leases.items() if any(s.holds(offset) for s in lease.spans))
    return next(held, None)


def owed(cursor: Cursor, end: int) -> ranges.Ranges:
    """The offsets before `end` that are not settled."""
    unsettled_ranges = ranges.normalise([*ranges_of(unsettled(cursor)), (cursor.next, max(cursor.next, end))])
    return ranges.subtract(unsettled_ranges, ((end, max(end, cursor.next)),))


def purge(cursor: Cursor, end: int, segment_at: int) -> Cursor:
    """Skip all offsets before `end` that are not settled; leases lose them. `segment_at` is where the segment begins
    that holds `end`."""
    skipped = owed(cursor, end)
    rest = {token: without(lease.spans, skipped) for token, lease in cursor.leases.items()}
    leases = {token: replace(cursor.leases[token], spans=spans) for token, spans in rest.items() if spans}
    selection = Selection((), (), skipped, max(cursor.next, end), segment_at, ranges.total(skipped))
    return transitions.claim(replace(cursor, leases=leases), selection, "", "", 0)


def pass_over(spans: Sequence[Span], settled: ranges.Ranges, offset: int, segment_at: int) -> Selection:
    """What a claim of this offset does with those before it that were never claimed: `spans` wait in the cursor,
    `settled` ones hold no message."""
    return Selection((), tuple(spans), settled, offset + 1, segment_at, ranges.total(settled))
