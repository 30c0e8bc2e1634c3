"""How fast messages come into a topic and leave it, and how far its groups were behind: the last hour, day or week."""

from __future__ import annotations

from ...domain.meter import Bucket, Reading, Window, buckets
from ...domain.topic import Topic
from ...ports.readings import Readings
from ...ports.world import Clock
from .survey import Surveyor


class RateCharts:
    """Reads only."""

    def __init__(self, surveyor: Surveyor, readings: Readings, clock: Clock) -> None:
        self._surveyor = surveyor
        self._readings = readings
        self._clock = clock

    def of(self, topic: Topic, window: Window) -> list[Bucket]:
        """The buckets of a window up to now. Costs two read units or so, and what `reading` does."""
        kept = self.kept(topic, window)
        now = self._surveyor.reading(topic)
        return buckets(
            [*(each for each in kept if each.at_ms < now.at_ms), now], window, self._clock.now_ms()
        )

    def kept(self, topic: Topic, window: Window) -> list[Reading]:
        """The readings that were kept, in order of time."""
        readings = [
            reading
            for level in window.levels
            for reading in self._readings.latest(topic.uid, level, window.most(level))
        ]
        return sorted(readings, key=lambda reading: reading.at_ms)
