"""How many messages per second come into a topic and are settled, and its groups' backlogs: in the last hour, day or
week."""

from __future__ import annotations

from ...domain.meter import Bucket, Reading, Window, buckets
from ...domain.topic import Topic
from ...ports.readings import Readings
from ...ports.world import Clock
from .survey import Surveyor

_MOST_ROWS = 1_000


class RateCharts:
    """Reads only."""

    def __init__(self, surveyor: Surveyor, readings: Readings, clock: Clock) -> None:
        self._surveyor = surveyor
        self._readings = readings
        self._clock = clock

    def of(
        self, topic: Topic, window: Window, *, most_rows: int = _MOST_ROWS, reads_now: bool = True
    ) -> list[Bucket]:
        """The buckets of a window up to now, or (not `reads_now`) to the last reading that was kept. Costs two read
        units or so for those, of each level the last `most_rows`; and what `reading` does."""
        readings = self._kept(topic, window, most_rows)
        if reads_now:
            now = self._surveyor.reading(topic)
            readings = [*(each for each in readings if each.at_ms < now.at_ms), now]
        return buckets(readings, window, self._clock.now_ms())

    def _kept(self, topic: Topic, window: Window, most_rows: int) -> list[Reading]:
        """The readings that were kept, in order of time."""
        readings = [
            reading
            for level in window.levels
            for reading in self._readings.latest(topic.uid, level, min(window.most(level), most_rows))
        ]
        return sorted(readings, key=lambda reading: reading.at_ms)
