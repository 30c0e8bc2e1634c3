"""Counts of topics at a moment in the past, as the archive's report has stored them (docs/report.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time

import msgspec

from ...domain import strict_json
from ...domain.errors import NotFound
from ...domain.times import HOUR_MS
from ...domain.topic import Topic
from ...ports.world import Blobs


class _Hours(msgspec.Struct):
    """What is asked of a day's counts: by group and state the numbers at its full hours."""

    since: date
    complete: bool
    groups: dict[str, dict[str, list[int]]]


@dataclass(frozen=True, slots=True)
class PastCounts:
    """A topic at a full hour. Messages accepted before `since_ms` are not counted. `is_complete` is False if the
    archive lacks something of the days until then. `groups`: by group, the number of messages in each state."""

    counted_ms: int
    since_ms: int
    is_complete: bool
    groups: Mapping[str, Mapping[str, int]]


class Past:
    """Reads one small object."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def of(self, topic: Topic, at_ms: int) -> PastCounts:
        """The counts of the last full hour before that time, UTC. Raises NotFound if there are none."""
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
        counts = self._hours(topic, at)
        groups = {
            name: {state: numbers[at.hour] for state, numbers in states.items()}
            for name, states in (counts.groups if counts else {}).items()
            if all(at.hour < len(numbers) for numbers in states.values())
        }
        if not counts or not groups:
            raise _not_counted(topic, at)
        since = datetime.combine(counts.since, time(), UTC)
        return PastCounts(at_ms // HOUR_MS * HOUR_MS, int(since.timestamp()) * 1000, counts.complete, groups)

    def _hours(self, topic: Topic, at: datetime) -> _Hours | None:
        """The counts of a day; None if there are none that can be read: the next report writes them again."""
        raw = self._blobs.get(f"reports/hours/day={at.date()}/{topic.name}.json")
        try:
            return strict_json.decoded(raw, _Hours) if raw else None
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None


def _not_counted(topic: Topic, at: datetime) -> NotFound:
    moment = f"{at:%Y-%m-%dT%H:%M:%SZ}"
    return NotFound(
        "NOT_ARCHIVED",
        f"Topic {topic.name!r} was not counted for {moment}: the report, which follows the archive, counts the full "
        f'hours of its days (`make archive report`). `make asof ARGS="--topic {topic.name} --at {moment}"` counts '
        "that very moment, from the archive.",
    )
