"""ports.Rounds in memory."""

from __future__ import annotations

import threading
from dataclasses import replace

from ...ports.rounds import Place


class MemoryRounds:
    """ports.Rounds as a dict."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[str, Place] = {}

    def place(self, job: str) -> Place:
        return self._places.get(job, Place())

    def keep(self, job: str, place: Place) -> Place | None:
        with self._lock:
            if self.place(job).version != place.version:
                return None
            self._places[job] = replace(place, version=place.version + 1)
            return self._places[job]
