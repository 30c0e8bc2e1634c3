"""A day, or its first hours, and the journal's objects of that time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from glue_jobs.common.bucket import Bucket, Entry
from glue_jobs.common.schemas import TABLES


@dataclass(frozen=True, slots=True)
class Window:
    """A day up to an hour (24: all of it)."""

    day: date
    until_hour: int = 24

    @property
    def name(self) -> str:
        return self.day.isoformat()

    @property
    def begin(self) -> datetime:
        return datetime(self.day.year, self.day.month, self.day.day, tzinfo=UTC)

    @property
    def end(self) -> datetime:
        return self.begin + timedelta(hours=self.until_hour)

    def is_closed(self, now: datetime, lateness_minutes: int) -> bool:
        """Has all that belongs to it come, but for accidents?"""
        return self.end + timedelta(minutes=lateness_minutes) <= now

    @property
    def hours(self) -> list[str]:
        """The folders of its journal."""
        return [f"day={self.name}/hour={hour:02}" for hour in range(self.until_hour)]

    @property
    def neighbour_hours(self) -> list[str]:
        """The hours before and after it: by clocks that differ, neighbours may lie there."""
        return [f"day={at:%Y-%m-%d}/hour={at:%H}" for at in (self.begin - timedelta(hours=1), self.end)]


def inputs(bucket: Bucket, window: Window, tables: Iterable[str] = TABLES) -> dict[str, list[Entry]]:
    """The journal objects of a window, by table."""
    return {
        table: [
            entry
            for entry in bucket.entries(f"journal/{table}/day={window.name}")
            if entry.name.endswith(".gz") and any(f"/{hour}/" in entry.name for hour in window.hours)
        ]
        for table in tables
    }


def size_of(entries: Mapping[str, Iterable[Entry]]) -> int:
    """How many bytes they have together."""
    return sum(entry.size for some in entries.values() for entry in some)


def digest_of(entries: Mapping[str, Iterable[Entry]]) -> str:
    """A text that changes with any of them."""
    lines = [f"{entry.name} {entry.size}\n" for table in TABLES for entry in entries[table]]
    return f"{len(lines)} {hashlib.sha256(''.join(lines).encode()).hexdigest()}"
