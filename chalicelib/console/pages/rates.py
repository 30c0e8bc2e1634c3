"""How fast messages come and go, over an hour, a day, a week: one chart for what came in, and for each group what it
settled, retried, and was behind.

Charts are SVG paths, drawn here: they need no script.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ...domain.meter import WINDOWS, Bucket, GroupBucket, Window
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


def rates(visit: Visit) -> Shown:
    """The charts of a topic and its groups."""
    topic = visit.topic()
    name = visit.query.get("window", "")
    name = name if name in WINDOWS else "1h"
    groups = visit.deps.catalog.groups(topic)
    # What is read now costs half a unit for each shard and group: in a large topic the curve ends with the last minute.
    cost_now = (topic.shards + len(groups)) / 2
    now = visit.deps.surveyor.reading(topic) if cost_now < MOST_READ_UNITS / 2 else None
    rows = rows_for(visit, topic, len(groups))
    buckets = visit.deps.rate_charts.of(topic, WINDOWS[name], now, most_rows=rows)
    mine = [group.name for group in groups if visit.caller.may_use_group(group.name)]
    model = {
        "topic": topic,
        "window": name,
        "windows": list(WINDOWS),
        "charts": charts(buckets, WINDOWS[name], visit.now_ms, mine[:_MOST_GROUPS]),
        "groups_left": max(0, len(mine) - _MOST_GROUPS),
        "poll_seconds": 30,
    }
    return Page("rates.html", model)


def rows_for(visit: Visit, topic: Topic, groups: int) -> int:
    """How many readings of a topic with so many groups a page may still read."""
    plain = _ROW_BYTES + _GROUP_BYTES * groups
    row = max(plain, min(_MOST_BYTES, plain + _SHARD_BYTES * topic.shards * groups))
    read_units = MOST_READ_UNITS - visit.units.number - _ROUNDED_UP
    return max(1, int(read_units * _UNIT_BYTES / row))


@dataclass(kw_only=True, frozen=True, slots=True)
class Chart:
    """A curve: its line and the area below it as paths; its highest value, its mean, the last one. None: not known."""

    line: str
    area: str
    most: float | None
    mean: float | None
    last: float | None


@dataclass(frozen=True, slots=True)
class GroupCharts:
    """The charts of a group."""

    group: str
    settled: Chart
    retried: Chart
    backlog: Chart


@dataclass(frozen=True, slots=True)
class RateCharts:
    """Everything that the page shows, between two moments."""

    from_ms: int
    to_ms: int
    accepted: Chart
    groups: Sequence[GroupCharts]


@dataclass(frozen=True, slots=True)
class ShardChart:
    """How far a group was behind in one shard; all shards' charts have one scale."""

    shard: int
    backlog: Chart


@dataclass(frozen=True, slots=True)
class ShardCharts:
    """The same of several shards, between two moments."""

    from_ms: int
    shards: Sequence[ShardChart]

    @property
    def is_known(self) -> bool:
        return any(each.backlog.most is not None for each in self.shards)


def shard_charts(
    buckets: Sequence[Bucket], window: Window, now_ms: int, group: str, shards: Iterable[int]
) -> ShardCharts:
    """The charts of a window that ends now, of these shards; `buckets` with backlogs by shard."""
    from_ms = _start_ms(window, now_ms)
    values = {
        shard: [
            (bucket, bucket.groups[group].by_shard[shard] if group in bucket.groups else None)
            for bucket in buckets
        ]
        for shard in shards
    }
    most = max((number for each in values.values() for _, number in each if number), default=None)
    return ShardCharts(
        from_ms, [ShardChart(shard, _chart(each, from_ms, now_ms, most)) for shard, each in values.items()]
    )


def charts(buckets: Sequence[Bucket], window: Window, now_ms: int, groups: Iterable[str]) -> RateCharts:
    """The charts of a window that ends now, of these groups."""
    from_ms = _start_ms(window, now_ms)

    def chart(value: Callable[[Bucket], float | None]) -> Chart:
        return _chart([(bucket, value(bucket)) for bucket in buckets], from_ms, now_ms)

    def of_group(name: str, value: Callable[[GroupBucket], float | None]) -> Chart:
        return chart(lambda bucket: value(bucket.groups[name]) if name in bucket.groups else None)

    return RateCharts(
        from_ms,
        now_ms,
        chart(lambda bucket: bucket.accepted),
        [
            GroupCharts(
                name,
                of_group(name, lambda rates: rates.settled),
                of_group(name, lambda rates: rates.retried),
                of_group(name, lambda rates: rates.backlog),
            )
            for name in groups
        ],
    )


def _start_ms(window: Window, now_ms: int) -> int:
    return (now_ms - window.span_ms) // window.bucket_ms * window.bucket_ms


def _chart(
    values: Sequence[tuple[Bucket, float | None]], from_ms: int, to_ms: int, scale: float | None = None
) -> Chart:
    """`scale`: the value at the top (without: the highest one)."""
    numbers = [value for _, value in values if value is not None]
    most = max(numbers, default=None)
    lines: list[list[str]] = [[]]
    for bucket, value in values:
        if value is None:
            lines.append([])
            continue
        y = HEIGHT - 1 - value / (scale or most or 1) * (HEIGHT - 1 - _TOP)
        for at_ms in (bucket.from_ms, bucket.to_ms):  # steps: a bucket has one rate
            x = WIDTH * (at_ms - from_ms) / max(1, to_ms - from_ms)
            lines[-1].append(f"{min(max(x, 0), WIDTH):.1f} {y:.1f}")
    paths = [points for points in lines if points]
    return Chart(
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
