"""Sets of offsets kept as sorted, disjoint, non-adjacent half-open ranges: ((start, end), …)."""

from __future__ import annotations

from collections.abc import Iterable

Range = tuple[int, int]
Ranges = tuple[Range, ...]


def normalise(ranges: Iterable[Range]) -> Ranges:
    """Sort, drop empty ranges, merge ranges that touch or overlap."""
    result: list[Range] = []
    for start, end in sorted(r for r in ranges if r[0] < r[1]):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((start, end))
    return tuple(result)


def of(offsets: Iterable[int]) -> Ranges:
    """The ranges that hold exactly these offsets."""
    return normalise((offset, offset + 1) for offset in offsets)


def subtract(ranges: Iterable[Range], removed_ranges: Ranges) -> Ranges:
    """The part of `ranges` that is not in `removed_ranges`."""
    rest: list[Range] = []
    for start, end in ranges:
        for low, high in removed_ranges:
            if high <= start or low >= end:
                continue
            if low > start:
                rest.append((start, low))
            start = high
        if start < end:
            rest.append((start, end))
    return tuple(rest)


def contains(ranges: Ranges, offset: int) -> bool:
    """Is the offset in one of the ranges?"""
    return any(start <= offset < end for start, end in ranges)


def touch(ranges: Ranges, start: int, end: int) -> bool:
    """Is any offset of [start, end) in one of the ranges?"""
    return any(low < end and start < high for low, high in ranges)


def total(ranges: Iterable[Range]) -> int:
    """How many offsets the ranges hold."""
    return sum(end - start for start, end in ranges)
