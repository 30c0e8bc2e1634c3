"""How fast messages come and go, over an hour, a day, a week: one chart for what came in, and for each group what it
settled, retried, and was behind.

Charts are SVG paths, drawn here: they need no script. With script they say the value under the pointer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import floor, log10
from operator import attrgetter
from typing import NamedTuple

from ...domain.meter import WINDOWS, Bucket, GroupBucket, Window
from ...domain.times import DAY_MS, HOUR_MS, MINUTE_MS
from ...domain.topic import Topic
from ..visit import MOST_READ_UNITS, Page, Shown, Visit

_UNIT_BYTES = 8_000  # of readings, for a read unit
_ROUNDED_UP = 2  # read units: half of one for each level of readings, and a little
# of a reading, of a group in it, of a shard that is behind
_ROW_BYTES, _GROUP_BYTES, _SHARD_BYTES = 130, 40, 5
_MOST_BYTES = 512  # of a reading with its shards
_MOST_GROUPS = 12
WIDTH, HEIGHT = 600, 72
_TOP = 4  # of the height, above the highest point
_TICKS_MS = (15 * MINUTE_MS, 6 * HOUR_MS, 2 * DAY_MS)
_MOST_TICKS = 4


def rates(visit: Visit) -> Shown:
    """The charts of a topic and its groups."""
    topic = visit.topic()
    name = window_of(visit)
    groups = visit.deps.catalog.groups(topic)
    # What is read now costs half a unit for each shard and group: in a large topic the curve ends with the last minute.
    cost_now = (len(topic.shard_numbers) + len(groups)) / 2
    now = visit.deps.surveyor.reading(topic) if cost_now < MOST_READ_UNITS / 2 else None
    rows = rows_for(visit, topic, len(groups))
    buckets = visit.deps.board.rates(topic, WINDOWS[name], now, most=rows)
    mine = [group.name for group in groups if visit.caller.may_use_group(group.name)]
    model = {
        "window": name,
        "windows": list(WINDOWS),
        "charts": charts(buckets, WINDOWS[name], visit.now_ms, mine[:_MOST_GROUPS]),
        "groups_left": max(0, len(mine) - _MOST_GROUPS),
        "poll_seconds": 30,
    }
    return Page("rates.html", model)


def window_of(visit: Visit) -> str:
    """The name of the span that the URL asks for."""
    name = visit.query.get("window", "")
    return name if name in WINDOWS else "1h"


def rows_for(visit: Visit, topic: Topic, groups: int) -> int:
    """How many readings of a topic with so many groups a page may still read."""
    plain = _ROW_BYTES + _GROUP_BYTES * groups
    row = max(plain, min(_MOST_BYTES, plain + _SHARD_BYTES * len(topic.shard_numbers) * groups))
    read_units = MOST_READ_UNITS - visit.units.reads - _ROUNDED_UP
    return max(1, int(read_units * _UNIT_BYTES / row))


class Axis(NamedTuple):
    """The time of charts, from a moment to another: the length of a bucket, and the times that have a mark."""

    from_ms: int
    to_ms: int
    bucket_ms: int
    every_ms: int

    @property
    def ticks(self) -> list[tuple[int, float]]:
        """The marked times, and where they are, in parts of a hundred."""
        first_ms = -(-self.from_ms // self.every_ms) * self.every_ms
        return [(at, self.part(at) * 100) for at in range(first_ms, self.to_ms, self.every_ms)]

    def part(self, at_ms: int) -> float:
        """Where a time is, between 0 and 1."""
        return min(max((at_ms - self.from_ms) / max(1, self.to_ms - self.from_ms), 0), 1)


class Chart(NamedTuple):
    """A curve: its line and the area below it as paths; the value at the top of the scale; its highest value, its mean,
    the last one. None: not known. `values`: of each bucket, with a gap where it is not known."""

    axis: Axis
    line: str
    area: str
    top: float
    most: float | None
    mean: float | None
    last: float | None
    values: str


def shard_charts(
    buckets: Sequence[Bucket], window: Window, now_ms: int, group: str, shards: Mapping[int, int]
) -> dict[int, Chart]:
    """How far a group was behind in each of these shards, in a window that ends now: all charts have one scale.
    `shards`: the place of each by its number; `buckets` with backlogs by shard."""
    axis = _axis(window, now_ms)
    own = [(bucket, bucket.groups[group].by_shard if group in bucket.groups else ()) for bucket in buckets]
    values = {s: [(bucket, of[place] if of else None) for bucket, of in own] for s, place in shards.items()}
    most = max((number for each in values.values() for _, number in each if number), default=None)
    return {shard: _chart(each, axis, most) for shard, each in values.items()}


def charts(
    buckets: Sequence[Bucket], window: Window, now_ms: int, groups: Iterable[str]
) -> tuple[Chart, dict[str, dict[str, Chart]]]:
    """The charts of a window that ends now: of what was accepted, and of these groups what they settled and retried,
    and their backlogs."""
    axis = _axis(window, now_ms)

    def of_group(name: str, value: Callable[[GroupBucket], float | None]) -> Chart:
        values = (value(bucket.groups[name]) if name in bucket.groups else None for bucket in buckets)
        return _chart(list(zip(buckets, values, strict=True)), axis)

    accepted = _chart([(bucket, bucket.accepted) for bucket in buckets], axis)
    return accepted, {
        name: {what: of_group(name, attrgetter(what)) for what in ("settled", "retried", "backlog")}
        for name in groups
    }


def _axis(window: Window, now_ms: int) -> Axis:
    from_ms = (now_ms - window.span_ms) // window.bucket_ms * window.bucket_ms
    every_ms = next(ms for ms in _TICKS_MS if window.span_ms <= _MOST_TICKS * ms)
    return Axis(from_ms=from_ms, to_ms=now_ms, bucket_ms=window.bucket_ms, every_ms=every_ms)


def _top(most: float) -> float:
    """The value at the top of a scale: half of it is a round number, too."""
    power = 10.0 ** floor(log10(most)) if most else 1.0
    return next(step * power for step in (1, 2, 4, 10) if step * power >= most)


def _chart(values: Sequence[tuple[Bucket, float | None]], axis: Axis, scale: float | None = None) -> Chart:
    """`scale`: a value that has room (without: the highest one)."""
    numbers = [value for _, value in values if value is not None]
    most = max(numbers, default=None)
    top = _top(scale or most or 0)
    lines: list[list[str]] = [[]]
    for bucket, value in values:
        if value is None:
            lines.append([])
            continue
        y = HEIGHT - 1 - value / top * (HEIGHT - 1 - _TOP)
        for at_ms in (bucket.from_ms, bucket.to_ms):  # steps: a bucket has one rate
            lines[-1].append(f"{WIDTH * axis.part(at_ms):.1f} {y:.1f}")
    paths = [points for points in lines if points]
    by_time = {(bucket.from_ms - axis.from_ms) // axis.bucket_ms: value for bucket, value in values}
    known = [by_time.get(n) for n in range(max(by_time, default=-1) + 1)]
    return Chart(
        axis=axis,
        values=" ".join("-" if value is None else f"{value:.3g}" for value in known),
        top=top,
        line="".join("M" + "L".join(points) for points in paths),
        area="".join(_area_below(points) for points in paths),
        most=most,
        mean=sum(numbers) / len(numbers) if numbers else None,
        last=numbers[-1] if numbers else None,
    )


def _area_below(points: Sequence[str]) -> str:
    """The area below a line."""
    first, last = points[0].split()[0], points[-1].split()[0]
    return f"M{first} {HEIGHT}L" + "L".join(points) + f"L{last} {HEIGHT}Z"
