"""Readings of topics' meters."""

from __future__ import annotations

from typing import Protocol

from ..domain.meter import Level, Reading


class Readings(Protocol):
    """Readings of topics' meters, for charts only. They may be a moment old."""

    def keep(self, topic_uid: str, level: Level, reading: Reading) -> None:
        """Store a reading, in the place of one of the same hour (ten minutes, minute)."""
        ...

    def latest(self, topic_uid: str, level: Level, most: int) -> list[Reading]:
        """The last readings of a level, in order of time."""
        ...
