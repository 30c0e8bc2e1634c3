"""Spans of offsets with the same attempt, unit and due time, stored as a run or with a bit mask; how to join and split
them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from itertools import repeat
from operator import itemgetter

from . import ranges
from .limits import MAX_RECEIVE
from .ranges import Ranges

HEAVY = "!"  # in place of a unit of order: of a heavy tenant's messages, skipped or granted behind those of others
LAPSED_MS = 1  # the due time of what a lease lost by ending: at once, and the span says so
_BITS = 6  # of a mask in one byte


_RUN_BYTES = 9  # about the size of one range


_RUNS = 8  # so many ranges stay ranges even where a mask is shorter


_ONES = re.compile("1+")


@dataclass(frozen=True, slots=True)
class Span:
    """`count` offsets from `start` on with the same attempt, unit and due time: consecutive ones or, with a `mask`,
    those whose bits are set (the lowest bit is for `start`). Spans with masks may overlap as ranges; their offsets
    never do.

    `attempt` is the number the next (waiting) or current (leased) delivery has, from 1. `unit` names the unit
    of order (SERIAL only, else empty or HEAVY). `due_ms` is the earliest time of the next delivery, 0 for at once.
    """

    start: int
    count: int = 1
    attempt: int = 1
    unit: str = ""
    due_ms: int = 0
    mask: int = 0

    @property
    def end(self) -> int:
        """The last offset plus one."""
        return self.start + (self.mask.bit_length() or self.count)

    @property
    def has_lapsed(self) -> bool:
        """Is it to be delivered again since its lease ended before it was settled?"""
        return self.due_ms == LAPSED_MS

    @property
    def next_ms(self) -> int | None:
        """The earliest time of the next delivery; None: at once."""
        return self.due_ms if self.due_ms > LAPSED_MS else None

    def ranges(self) -> Ranges:
        """Its offsets as half-open ranges, in rising order."""
        if not self.mask:
            return ((self.start, self.end),)
        runs = _ONES.finditer(f"{self.mask:b}"[::-1])
        return tuple((self.start + run.start(), self.start + run.end()) for run in runs)

    def offsets(self) -> Iterable[int]:
        """Its offsets, in rising order."""
        if not self.mask:
            return range(self.start, self.end)
        return (offset for low, high in self.ranges() for offset in range(low, high))

    def holds(self, offset: int) -> bool:
        """Is the offset one of its offsets?"""
        at = offset - self.start
        return bool(self.mask >> at & 1) if self.mask and at >= 0 else 0 <= at < self.count


def coalesce(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Sort by offset and join offsets with the same attempt, unit and due time: neighbours become runs, and many runs
    close to each other one span with a mask."""
    runs = _runs(spans)
    if len(runs) <= _RUNS:
        return runs
    by_kind: defaultdict[tuple[int, str, int], list[Span]] = defaultdict(list)
    for run in runs:
        by_kind[_kind(run)].append(run)
    masked = (span for alike in by_kind.values() for close in _clusters(alike) for span in _masked(close))
    return tuple(sorted(masked, key=lambda s: s.start))


def _clusters(runs: Sequence[Span]) -> Iterator[list[Span]]:
    """Groups of runs that one mask holds with few empty bits."""
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
    result: list[Span] = []
    first: Span | None = None  # of the run being joined, which reaches up to `end`
    end = -1
    for span in sorted(_unmasked(spans), key=lambda s: s.start):
        if first and end == span.start and _kind(first) == _kind(span):
            end = span.end
            continue
        if first:
            result.append(replace(first, count=end - first.start))
        first, end = span, span.end
    return (*result, replace(first, count=end - first.start)) if first else ()


def _unmasked(spans: Iterable[Span]) -> Iterator[Span]:
    """The same offsets in spans without masks."""
    for span in spans:
        if not span.mask:
            yield span
            continue
        for low, high in span.ranges():
            yield replace(span, start=low, count=high - low, mask=0)


def _kind(span: Span) -> tuple[int, str, int]:
    return span.attempt, span.unit, span.due_ms


def without(spans: Iterable[Span], removed_ranges: Ranges) -> tuple[Span, ...]:
    """The spans without the `removed_ranges` offsets; the caller joins them again."""
    return tuple(rest for span in spans for rest in _without(span, removed_ranges))


def _without(span: Span, removed_ranges: Ranges) -> Iterator[Span]:
    if not span.mask:  # a run may be of any length
        for low, high in ranges.subtract(span.ranges(), removed_ranges):
            yield replace(span, start=low, count=high - low)
        return
    bits = span.mask
    for low, high in removed_ranges:
        if low < span.end and high > span.start:
            first = max(low, span.start) - span.start
            bits &= ~(((1 << high - span.start - first) - 1) << first)
    if bits:
        at = (bits & -bits).bit_length() - 1
        yield replace(span, start=span.start + at, count=bits.bit_count(), mask=bits >> at)


def in_order(spans: Iterable[Span]) -> Iterator[tuple[int, Span]]:
    """The offsets of all spans in rising order, each with its span. None is listed before it is asked for: a lane may
    have millions that wait."""
    return merge(*(zip(span.offsets(), repeat(span)) for span in spans), key=itemgetter(0))


def ranges_of(spans: Iterable[Span]) -> Ranges:
    """The offsets of all spans as half-open ranges, joined and in rising order."""
    return ranges.normalise(span_range for span in spans for span_range in span.ranges())
