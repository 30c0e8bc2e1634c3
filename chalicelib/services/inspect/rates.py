"""How many messages per second come into a topic and are settled, and its groups' backlogs: in the last hour, day or
week."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...domain.meter import Bucket, Reading, Window, buckets
from ...domain.topic import Group, Topic
from ...ports.world import Clock

if TYPE_CHECKING:
    from ...store.readings import Readings


_MOST_ROWS = 1_000


class RateCharts:
    """Reads only."""

    def __init__(self, readings: Readings, clock: Clock) -> None:
        self._readings = readings
        self._clock = clock

    def of(
        self,
        topic: Topic,
        window: Window,
        now: Reading | None,
        *,
        only: Group | None = None,
        most_rows: int = _MOST_ROWS,
    ) -> list[Bucket]:
        """The buckets of a window up to `now`, or (None) to the last reading that was kept. `only`: of one group, with
        its backlog by shard. Costs two read units or so; about the last `most_rows` are read."""
        readings = self._kept_readings(topic, window, most_rows)
        if now:
            readings = [*(each for each in readings if each.at_ms < now.at_ms), now]
        if only:
            readings = [_of_group(reading, only) for reading in readings if _is_of(reading, only)]
        now_ms = now.at_ms if now else self._clock.now_ms()
        return buckets(readings, window, now_ms, shards=topic.shards if only else 0)

    def _kept_readings(self, topic: Topic, window: Window, most_rows: int) -> list[Reading]:
        """The readings that were kept, in order of time. If not all may be read, each level's go back equally far."""
        share = min(1, most_rows / sum(window.most(level) for level in window.levels))
        readings = [
            reading
            for level in window.levels
            for reading in self._readings.latest(topic.uid, level, max(1, int(window.most(level) * share)))
        ]
        return sorted(readings, key=lambda reading: reading.at_ms)


def _is_of(reading: Reading, group: Group) -> bool:
    """Is the group in the reading, and no earlier one of its name?"""
    return group.name in reading.groups and reading.at_ms >= group.created_ms


def _of_group(reading: Reading, group: Group) -> Reading:
    """The reading without other groups."""
    return replace(reading, groups={group.name: reading.groups[group.name]})
