"""Sets of offsets as ranges: sorted, apart, first and last belonging to each."""

from __future__ import annotations

from collections.abc import Iterable

Range = tuple[int, int]
Ranges = tuple[Range, ...]


def merged(ranges: Iterable[Range]) -> Ranges:
    """All offsets of the ranges."""
    joined_ranges: list[Range] = []
    for first, last in sorted(ranges):
        if joined_ranges and first <= joined_ranges[-1][1] + 1:
            joined_ranges[-1] = (joined_ranges[-1][0], max(joined_ranges[-1][1], last))
        else:
            joined_ranges.append((first, last))
    return tuple(joined_ranges)


def without(ranges: Iterable[Range], taken: Iterable[Range]) -> Ranges:
    """The offsets that are in `ranges` but not in `taken`."""
    rest: list[Range] = []
    taken_ranges = merged(taken)
    for first, last in merged(ranges):
        for begin, end in taken_ranges:
            if end < first or begin > last:
                continue
            if begin > first:
                rest.append((first, begin - 1))
            first = end + 1
        if first <= last:
            rest.append((first, last))
    return tuple(rest)


def common(ranges: Iterable[Range], others: Iterable[Range]) -> Ranges:
    """The offsets that are in both."""
    all_ranges = merged(ranges)
    return without(all_ranges, without(all_ranges, others))


def size(ranges: Iterable[Range]) -> int:
    """How many offsets there are."""
    return sum(last - first + 1 for first, last in ranges)


def pieces(ranges: Iterable[Range], most: int) -> list[Range]:
    """The same offsets in ranges of at most `most`."""
    return [
        (start, min(start + most - 1, last))
        for first, last in ranges
        for start in range(first, last + 1, most)
    ]
