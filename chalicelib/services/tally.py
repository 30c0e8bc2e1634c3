"""What happened to messages in this process, counted for whoever tells of it (observe)."""

from __future__ import annotations

import threading
from collections import Counter

ACCEPTED = "Accepted"
DELIVERED = "Delivered"
FAILED = "Failed"
DEAD = "Dead"


class Tally:
    """Counts by name. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, name: str, count: int) -> None:
        if count:
            with self._lock:
                self._counts[name] += count

    def take(self) -> dict[str, int]:
        """What was counted since the last call."""
        if not self._counts:
            return {}
        with self._lock:
            taken, self._counts = self._counts, Counter()
        return dict(taken)
