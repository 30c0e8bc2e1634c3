"""The laws of every write of a cursor, by any process (I4, I5, I9, I15, I16); and its item is small."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from chalicelib.domain.cursor import Cursor
from chalicelib.domain.cursor_write import Change
from chalicelib.domain.limits import MAX_CURSOR_BYTES
from chalicelib.domain.spans import Span


def broken(before: Cursor, after: Cursor, change: Change, now_ms: int, item_bytes: int) -> Iterator[str]:
    """The laws that the step from `before` to `after`, which is stored in so many bytes, breaks; `now_ms` is by the
    writer's clock."""
    if item_bytes > MAX_CURSOR_BYTES:
        yield f"a cursor's item has {item_bytes:,} bytes"
    places = [*_settled(after), *_offsets(_leased(after)), *_offsets(after.waiting)]
    if sorted(places) != list(range(after.floor, after.next)):
        yield f"every offset of {after.floor}-{after.next} has one place, and these have: {sorted(places)}"
    if change.whole:
        return
    settled_offsets = {*range(before.begin, before.floor), *_settled(before)}
    if lost_offsets := settled_offsets - {*range(before.begin, after.floor), *_settled(after)}:
        yield f"settled offsets came back: {lost_offsets}"
    if (after.floor, after.next) < (before.floor, before.next) or after.next < before.next:
        yield f"a cursor went back from {before.next} to {after.next}"
    is_claim = after.epoch != before.epoch
    if after.epoch - before.epoch not in (0, 1) or (set(after.leases) - set(before.leases) and not is_claim):
        yield f"leases {set(after.leases) - set(before.leases)} from epoch {before.epoch} to {after.epoch}"
    if is_claim:
        yield from _taken(before, after, now_ms)


def _taken(before: Cursor, after: Cursor, now_ms: int) -> Iterator[str]:
    """A claim takes over what is overdue, and grants what is due."""
    for token, lease in before.leases.items():
        if after.leases.get(token) != lease and lease.deadline_ms > now_ms:
            yield f"the lease {token} was taken {lease.deadline_ms - now_ms} ms before its end"
    new_offsets = {
        o for token in set(after.leases) - set(before.leases) for o in _offsets(after.leases[token].spans)
    }
    for span in before.waiting:
        if span.due_ms > now_ms and new_offsets.intersection(span.offsets()):
            yield f"offset {span.start} was granted {span.due_ms - now_ms} ms early"


def _settled(cursor: Cursor) -> Iterator[int]:
    for start, end in cursor.settled:
        yield from range(max(start, cursor.floor), end)


def _leased(cursor: Cursor) -> Iterator[Span]:
    return (span for lease in cursor.leases.values() for span in lease.spans)


def _offsets(spans: Iterable[Span]) -> Iterator[int]:
    return (offset for span in spans for offset in span.offsets())
