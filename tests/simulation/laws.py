"""The laws of every write of a cursor, by any process (I4, I5, I9, I15, I16), and its item is small; those of what a
group's consumers get: no more of a key at once, and no more a second, than it allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from chalicelib.domain.cursor import Cursor
from chalicelib.domain.cursor_write import Change
from chalicelib.domain.limits import MAX_CURSOR_BYTES
from chalicelib.domain.spans import Span
from chalicelib.services.consume.claimant import ClaimedMessage

_ANSWER_S = 0.05  # from a permit to the claim's answer


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


class Flow:
    """What the consumers of one group have got, and when. `cursors` are the group's as stored, by the log's partition
    key; what was claimed and is not known to its consumer is in no work."""

    def __init__(self, settings: Mapping[str, Any], cursors: Callable[[str], Mapping[str, Cursor]]) -> None:
        self._rate: float = settings.get("rate_limit") or 0
        self._of_key: int = settings.get("key_concurrency") or 0
        self._cursors = cursors
        self._got_ms: dict[tuple[str, str], float] = {}
        self._units: dict[tuple[str, int], str] = {}

    def gets(self, messages: Sequence[ClaimedMessage], now_ms: float) -> Iterator[str]:
        """A claim was answered; the keys of which too many are in work now."""
        for each in messages:
            self._got_ms[each.receipt.token, each.message.id] = now_ms
            self._units[each.receipt.token, each.receipt.leased_offset] = each.unit
        cursors = self._cursors(messages[0].receipt.group_uid).values() if messages and self._of_key else ()
        leases = [each for cursor in cursors for each in cursor.leases.values() if each.deadline_ms > now_ms]
        counts = Counter(self._units.get((lease.token, n)) for lease in leases for n in lease.attempts())
        for unit in {each.unit for each in messages} - {""}:
            if counts[unit] > self._of_key:
                yield f"{counts[unit]} messages of key {unit} are in work, {self._of_key} may be"

    def gives_back(self, token: str, message_id: str) -> None:
        """A consumer never got it."""
        self._got_ms.pop((token, message_id), None)

    def too_fast(self) -> Iterator[str]:
        """By how much the busiest time, however long, was beyond the rate."""
        least = 0.0
        times_ms = sorted(self._got_ms.values()) if self._rate else []
        for n, at_ms in enumerate(times_ms):
            least = min(least, n - (share := (at_ms - times_ms[0]) / 1000 * self._rate))
            if n + 1 - share - least > self._rate * (0.25 + _ANSWER_S) + 2:
                yield f"{n + 1 - share - least:.1f} messages beyond {self._rate} a second"
