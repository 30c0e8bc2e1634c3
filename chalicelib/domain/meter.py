"""A topic's meters, and the rates that come of reading them.

Offsets are dense, so how many messages came in, and how many a group has behind it, can be read at any time, as on a
meter. A rate is the difference of two readings: one that is missing makes a curve coarser, never wrong in its sum.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000


@dataclass(frozen=True, slots=True)
class GroupReading:
    """What a group has behind it, what it has before it, and how many retries its lane has handed out. (A SERIAL
    group's failures wait in place and use no lane.)"""

    settled: int
    backlog: int
    retried: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """A topic's meters at one moment; groups by name."""

    at_ms: int
    accepted: int
    groups: Mapping[str, GroupReading] = field(default_factory=dict)

    def shows_more_than(self, earlier: Reading) -> bool:
        """Has anything moved since?"""
        return (self.accepted, self.groups) != (earlier.accepted, earlier.groups)


@dataclass(frozen=True, slots=True)
class Level:
    """Readings that are kept together: at most one in `every_ms`, for `keep_ms`."""

    name: str
    every_ms: int
    keep_ms: int


HOURS = Level("h", _HOUR_MS, 8 * _DAY_MS)
TENS = Level("t", 10 * _MINUTE_MS, 26 * _HOUR_MS)
MINUTES = Level("m", _MINUTE_MS, 3 * _HOUR_MS)
LEVELS = (HOURS, TENS, MINUTES)
STAGE = "stage"
"""In the place of a topic's uid: the sum of all topics, as one group without a name. Kept with HOURS."""
"""The coarsest first: a reading is kept once, with the first level that has none of this hour, ten minutes, minute."""


@dataclass(frozen=True, slots=True)
class Window:
    """How far back one looks, in buckets of which length, and which levels have a reading for each of them."""

    span_ms: int
    bucket_ms: int
    levels: tuple[Level, ...]

    def most(self, level: Level) -> int:
        """How many readings of a level it takes; one of them is from before its beginning."""
        return self.span_ms // level.every_ms + 2


WINDOWS: Mapping[str, Window] = {
    "1h": Window(_HOUR_MS, _MINUTE_MS, LEVELS),
    "24h": Window(_DAY_MS, 10 * _MINUTE_MS, (HOURS, TENS)),
    "7d": Window(7 * _DAY_MS, _HOUR_MS, (HOURS,)),
}


@dataclass(frozen=True, slots=True)
class GroupBucket:
    """A group's rates in a bucket, a second; its backlog at the end of it. None: it was not read."""

    settled: float | None
    retried: float | None
    backlog: int | None


@dataclass(frozen=True, slots=True)
class Bucket:
    """Rates a second between two moments; None: not known."""

    from_ms: int
    to_ms: int
    accepted: float | None
    groups: Mapping[str, GroupBucket]


def level_of(last_ms: Mapping[str, int], at_ms: int) -> Level | None:
    """With which level a reading is kept; `last_ms` tells the last one of each level. None: there is one already."""
    for level in LEVELS:
        if last_ms.get(level.name, -1) // level.every_ms != at_ms // level.every_ms:
            return level
    return None


def buckets(readings: Sequence[Reading], window: Window, now_ms: int) -> list[Bucket]:
    """The window's buckets up to now, from the first that is known; `readings` in order of time."""
    if not readings:
        return []
    names = sorted({name for reading in readings for name in reading.groups})
    accepted = _Curve(readings, lambda reading: reading.accepted, window)
    curves = {name: _curves(readings, name, window) for name in names}
    first_ms = (now_ms - window.span_ms) // window.bucket_ms * window.bucket_ms
    known_ms = readings[0].at_ms
    rows = []
    for start_ms in range(first_ms, now_ms, window.bucket_ms):
        end_ms = min(start_ms + window.bucket_ms, now_ms)
        if end_ms < known_ms:
            continue
        groups = {
            name: GroupBucket(settled.rate(start_ms, end_ms), retried.rate(start_ms, end_ms), lag.at(end_ms))
            for name, (settled, retried, lag) in curves.items()
        }
        rows.append(Bucket(start_ms, end_ms, accepted.rate(start_ms, end_ms), groups))
    return rows


def _curves(readings: Sequence[Reading], name: str, window: Window) -> tuple[_Curve, _Curve, _Curve]:
    own = [reading for reading in readings if name in reading.groups]
    return (
        _Curve(own, lambda reading: reading.groups[name].settled, window),
        _Curve(own, lambda reading: reading.groups[name].retried, window),
        _Curve(own, lambda reading: reading.groups[name].backlog, window),
    )


class _Curve:
    """One meter over time: a straight line from reading to reading.

    Readings follow closely while anything moves. Where two lie far apart the topic was at rest after the first: all
    that the second shows came within the bucket before it.
    """

    def __init__(self, readings: Sequence[Reading], value: Callable[[Reading], int], window: Window) -> None:
        self._times: list[int] = []
        self._values: list[float] = []
        for reading in readings:
            if self._times and reading.at_ms - self._times[-1] > 2 * window.bucket_ms:
                self._add(reading.at_ms - window.bucket_ms, self._values[-1])
            self._add(reading.at_ms, value(reading))

    def _add(self, at_ms: int, value: float) -> None:
        self._times.append(at_ms)
        self._values.append(value)

    def at(self, at_ms: int) -> int | None:
        """The meter at a moment between the first reading and the last."""
        value = self._at(at_ms)
        return None if value is None else round(value)

    def rate(self, start_ms: int, end_ms: int) -> float | None:
        """How much it rose a second, in that part of a bucket that is known. One that was set back (a seek, another
        group of this name) shows no rate below zero."""
        if not self._times:
            return None
        start_ms, end_ms = max(start_ms, self._times[0]), min(end_ms, self._times[-1])
        before, after = self._at(start_ms), self._at(end_ms)
        if before is None or after is None or start_ms >= end_ms:
            return None
        return max(0.0, after - before) * 1_000 / (end_ms - start_ms)

    def _at(self, at_ms: int) -> float | None:
        after = bisect_left(self._times, at_ms)
        if after == len(self._times):
            return None
        if self._times[after] == at_ms:
            return self._values[after]
        if after == 0:
            return None
        start_ms, end_ms = self._times[after - 1], self._times[after]
        start, end = self._values[after - 1], self._values[after]
        return start + (end - start) * (at_ms - start_ms) / (end_ms - start_ms)
