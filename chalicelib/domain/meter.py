"""A topic's counters, and the rates computed from readings of them.

Offsets are dense, so the number of messages produced, and the number a group has settled, can be read at any time, as
on a meter. A rate is the difference of two readings. A missing reading makes a curve coarser; its sum stays right.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, methodcaller
from typing import NamedTuple

from .times import DAY_MS, HOUR_MS, MINUTE_MS


@dataclass(frozen=True, slots=True)
class GroupReading:
    """How many messages a group has settled, its backlog, and how many retries its lane has delivered. (A SERIAL
    group's failures wait in place and use no lane.)

    `by_shard`: the backlog's parts by shard; empty where they are not known.
    """

    settled: int
    backlog: int
    retried: int = 0
    by_shard: tuple[int, ...] = field(default=(), compare=False)

    def backlog_of(self, shard: int) -> int | None:
        """The backlog in one shard; None: not known. A shard that the topic got later had none."""
        if not self.by_shard:
            return None if self.backlog else 0
        return self.by_shard[shard] if shard < len(self.by_shard) else 0


@dataclass(frozen=True, slots=True)
class Reading:
    """A topic's meters at one moment; groups by name."""

    at_ms: int
    accepted: int
    groups: Mapping[str, GroupReading] = field(default_factory=dict)

    @property
    def settled(self) -> int:
        """How many messages its groups have settled."""
        return sum(group.settled for group in self.groups.values())

    def shows_more_than(self, earlier: Reading) -> bool:
        """Has any number changed since `earlier`?"""
        return (self.accepted, self.groups) != (earlier.accepted, earlier.groups)


class Level(NamedTuple):
    """Readings that are kept together: at most one in `every_ms`, for `keep_ms`."""

    name: str
    every_ms: int
    keep_ms: int


HOURS = Level("h", HOUR_MS, 8 * DAY_MS)
TENS = Level("t", 10 * MINUTE_MS, 26 * HOUR_MS)
MINUTES = Level("m", MINUTE_MS, 3 * HOUR_MS)
# The coarsest first. A reading is stored once: with the first level that has none yet for this hour, ten minutes, or
# minute.
LEVELS = (HOURS, TENS, MINUTES)
# Used instead of a topic's uid: the sum of all topics, as one group without a name. Kept with HOURS.
STAGE = "stage"


class Window(NamedTuple):
    """A period up to now, the length of its buckets, and the levels that have a reading for each bucket."""

    span_ms: int
    bucket_ms: int
    levels: tuple[Level, ...]

    def most(self, level: Level) -> int:
        """How many readings of a level it needs; one of them is from before its beginning."""
        return self.span_ms // level.every_ms + 2


WINDOWS: Mapping[str, Window] = {
    "1h": Window(HOUR_MS, MINUTE_MS, LEVELS),
    "24h": Window(DAY_MS, 10 * MINUTE_MS, (HOURS, TENS)),
    "7d": Window(7 * DAY_MS, HOUR_MS, (HOURS,)),
}


class GroupBucket(NamedTuple):
    """A group's rates a second in a bucket, and its backlog at the end of the bucket, also by shard where that was
    wanted. None: there is no reading."""

    settled: float | None
    retried: float | None
    backlog: int | None
    by_shard: tuple[int | None, ...] = ()


class Bucket(NamedTuple):
    """Rates a second between two moments; None: not known."""

    from_ms: int
    to_ms: int
    accepted: float | None
    groups: Mapping[str, GroupBucket]


def level_of(last_ms: Mapping[str, int], at_ms: int) -> Level | None:
    """The level that stores a reading; `last_ms` is the time of each level's last one. None: every level has one
    already."""
    for level in LEVELS:
        if last_ms.get(level.name, -1) // level.every_ms != at_ms // level.every_ms:
            return level
    return None


def buckets(readings: Sequence[Reading], window: Window, now_ms: int, *, shards: int = 0) -> list[Bucket]:
    """The window's buckets up to now, from the first that is known; `readings` in order of time. `shards`: of so many
    also the backlogs by shard."""
    if not readings:
        return []
    names = sorted({name for reading in readings for name in reading.groups})
    accepted_curve = _Curve(readings, lambda reading: reading.accepted, window)
    bucket_of = {name: _group_buckets(readings, name, window, shards) for name in names}
    first_ms = (now_ms - window.span_ms) // window.bucket_ms * window.bucket_ms
    known_ms = readings[0].at_ms
    rows = []
    for start_ms in range(first_ms, now_ms, window.bucket_ms):
        end_ms = min(start_ms + window.bucket_ms, now_ms)
        if end_ms < known_ms:
            continue
        groups = {name: bucket(start_ms, end_ms) for name, bucket in bucket_of.items()}
        rows.append(Bucket(start_ms, end_ms, accepted_curve.rate(start_ms, end_ms), groups))
    return rows


def _group_buckets(
    readings: Sequence[Reading], name: str, window: Window, shards: int
) -> Callable[[int, int], GroupBucket]:
    """Gives one group's bucket between two times."""
    own = [reading for reading in readings if name in reading.groups]

    def curve(value: Callable[[GroupReading], int | None]) -> _Curve:
        return _Curve(own, lambda reading: value(reading.groups[name]), window)

    settled, retried, backlog = map(curve, map(attrgetter, ("settled", "retried", "backlog")))
    by_shard = [curve(methodcaller("backlog_of", shard)) for shard in range(shards)]
    return lambda start_ms, end_ms: GroupBucket(
        settled.rate(start_ms, end_ms),
        retried.rate(start_ms, end_ms),
        backlog.at(end_ms),
        tuple(each.at(end_ms) for each in by_shard),
    )


class _Curve:
    """One meter over time: a straight line from reading to reading.

    Readings follow closely while any number changes. Between two readings far apart the topic was idle after the first:
    the whole difference belongs to the bucket before the second.
    """

    def __init__(
        self, readings: Sequence[Reading], value: Callable[[Reading], int | None], window: Window
    ) -> None:
        self._times: list[int] = []
        self._values: list[float] = []
        for reading in readings:
            number = value(reading)
            if number is None:
                continue
            if self._times and reading.at_ms - self._times[-1] > 2 * window.bucket_ms:
                self._add(reading.at_ms - window.bucket_ms, self._values[-1])
            self._add(reading.at_ms, number)

    def _add(self, at_ms: int, value: float) -> None:
        self._times.append(at_ms)
        self._values.append(value)

    def at(self, at_ms: int) -> int | None:
        """The counter at a time between the first reading and the last."""
        value = self._at(at_ms)
        return None if value is None else round(value)

    def rate(self, start_ms: int, end_ms: int) -> float | None:
        """The increase a second, in the known part of a bucket. If the counter was set back (a seek, another group of
        this name) the rate is zero, not negative."""
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
