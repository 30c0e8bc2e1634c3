"""ports.Marks in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from ...domain.mark import Mark
from ...ports.rounds import EachMinute


class MemoryMarks:
    """ports.Marks as a set and a dict. `writes` counts the writes that DynamoDB would have made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._marks: set[tuple[int, str]] = set()
        self._watched: dict[str, int] = {}
        self._moving: set[str] = set()
        self._troubled: dict[str, int] = {}
        self.writes = 0

    def mark(self, mark: Mark) -> None:
        with self._lock:
            self._marks.add((mark.at_ms, mark.topic))
            self.writes += 1

    def since(self, from_ms: int) -> Iterator[Mark]:
        with self._lock:
            marks = sorted(mark for mark in self._marks if mark[0] >= from_ms)
        return (Mark(topic, at_ms) for at_ms, topic in marks)

    def watch(self, topic: str, edition: int) -> None:
        with self._lock:
            self._watched[topic] = edition

    def unwatch(self, topic: str) -> None:
        with self._lock:
            self._watched.pop(topic, None)

    def note_moving(self, topic: str) -> None:
        with self._lock:
            self._moving.add(topic)
            self.writes += 1

    def note_at_rest(self, topic: str) -> None:
        with self._lock:
            self._moving.discard(topic)
            self.writes += 1

    def note_trouble(self, topic: str, rank: int, before: int = 0) -> None:
        with self._lock:
            self._troubled.pop(topic, None)
            self._troubled |= {topic: rank} if rank else {}
            self.writes += 1

    def worst(self, most: int) -> dict[str, int]:
        with self._lock:
            ranks = sorted(self._troubled.items(), key=lambda each: (-each[1], each[0]))
        return dict(ranks[:most])

    def each_minute(self) -> EachMinute:
        with self._lock:
            return EachMinute(dict(self._watched), set(self._moving), dict(self._troubled))
