"""Where a time is in a shard's log."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...domain.segment import Segment

_MOST_STEPS = 16

ReadBack = Callable[[int], Sequence[Segment]]
"""The row that holds an offset, or the last one before it; nothing where there is none."""


def first_since(
    read_back: ReadBack,
    at_ms: int,
    low: int,
    high: int,
    may_go_on: Callable[[], bool] = lambda: True,
) -> int:
    """The first segment from `low` on, before `high`, accepted at or after a time; `high` if there is none. By binary
    search: about log2(n) reads. Damaged rows that lost their time are in it unless a later row is known to be earlier.
    If `may_go_on()` ends the search, the last offset known to be earlier."""
    untimed_at: int | None = None  # from it to `low` no row knows its time: rather given twice than never
    while low < high and may_go_on():
        middle = (low + high) // 2
        rows, is_ended = _back_to_a_time(read_back, middle, low, may_go_on)
        if is_ended:
            break
        if not rows:
            low = middle + 1
            continue
        *untimed_rows, oldest = rows
        if oldest.accepted_ms:
            is_earlier = oldest.accepted_ms < at_ms
            untimed_at = (untimed_rows[-1].first if untimed_rows else None) if is_earlier else untimed_at
        else:
            is_earlier = len(rows) < _MOST_STEPS  # else what is before them is not known
            untimed_at = oldest.first if is_earlier and untimed_at is None else untimed_at
        if is_earlier:
            low = rows[0].end
        else:
            high = oldest.first
    return low if untimed_at is None else untimed_at


def _back_to_a_time(
    read_back: ReadBack, at: int, low: int, may_go_on: Callable[[], bool]
) -> tuple[list[Segment], bool]:
    """The row at an offset, and those before it until one knows its time, none that ends before `low`; and whether
    `may_go_on()` has ended that."""
    rows: list[Segment] = []
    while at >= low and len(rows) < _MOST_STEPS:
        if rows and not may_go_on():
            return rows, True
        segments = read_back(at)
        if not segments or segments[0].end <= low:
            break
        rows.append(segments[0])
        if segments[0].accepted_ms:
            break
        at = segments[0].first - 1
    return rows, False
