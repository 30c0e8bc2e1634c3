"""Where a time is in a shard's log."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...domain.segment import Segment

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
    search: about log2(n) reads. If `may_go_on()` ends the search, the last offset known to be earlier."""
    while low < high and may_go_on():
        middle = (low + high) // 2
        rows = read_back(middle)
        if not rows or rows[0].end <= low:
            low = middle + 1
        elif rows[0].accepted_ms < at_ms:
            low = rows[0].end
        else:
            high = rows[0].first
    return low
