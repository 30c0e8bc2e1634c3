"""Counts of events in this process, for the metrics (observe)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

ACCEPTED = "Accepted"
DELIVERED = "Delivered"
FAILED = "Failed"
DEAD = "Dead"
UNDECODABLE = "Undecodable"
CHECKS = "Checks"
LOG_BEHIND = "LogBehind"
_MOST_EVENTS = 100


class Counters:
    """Counts by name. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._group_counts: dict[tuple[str, str], Counter[str]] = {}
        self._events: list[tuple[str, dict[str, Any]]] = []

    def note(self, event: str, **ids: Any) -> None:
        """Keep one event with its ids, for the log; the first hundred until they are taken."""
        with self._lock:
            if len(self._events) < _MOST_EVENTS:
                self._events.append((event, ids))

    def events(self) -> list[tuple[str, dict[str, Any]]]:
        """The events since the last call."""
        with self._lock:
            events, self._events = self._events, []
        return events

    def add(self, name: str, count: int) -> None:
        """Add `count` to a counter of this process; 0 adds no name."""
        if count:
            with self._lock:
                self._counts[name] += count

    def add_of_group(self, topic: str, group: str, counts: Mapping[str, int]) -> None:
        """Add to the counters of one group: those above 0."""
        with self._lock:
            self._group_counts.setdefault((topic, group), Counter()).update(+Counter(counts))

    def take_of_groups(self) -> dict[tuple[str, str], Counter[str]]:
        """The counts of groups since the last call, by topic and group."""
        with self._lock:
            counts, self._group_counts = self._group_counts, {}
        return counts

    def take(self) -> dict[str, int]:
        """The counts since the last call."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        return dict(counts)
