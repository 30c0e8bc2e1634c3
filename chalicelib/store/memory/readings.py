"""ports.Readings in memory."""

from __future__ import annotations

import threading
from collections import defaultdict

from ...domain.meter import Level, Reading


class MemoryReadings:
    """ports.Readings as dicts. `writes` counts the writes that DynamoDB would have made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: defaultdict[tuple[str, str], dict[int, Reading]] = defaultdict(dict)
        self.writes = 0

    def keep(self, topic_uid: str, level: Level, reading: Reading) -> None:
        with self._lock:
            readings = self._kept[topic_uid, level.name]
            readings[reading.at_ms // level.every_ms] = reading
            self.writes += 1
            for number in [n for n in readings if (n + 1) * level.every_ms < reading.at_ms - level.keep_ms]:
                del readings[number]

    def latest(self, topic_uid: str, level: Level, most: int) -> list[Reading]:
        with self._lock:
            readings = self._kept.get((topic_uid, level.name), {})
            return [readings[number] for number in sorted(readings)[-most:]]
