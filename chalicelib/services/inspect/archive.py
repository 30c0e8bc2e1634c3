"""What the archive's days hold: one manifest a day and, of its report, one object for each topic and day, read from the
bucket (a folder locally)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TypeVar

import msgspec

from ...domain import strict_json
from ...domain.archive import WHOLE_DAY, ArchivedDay, TopicDay
from ...domain.errors import NotFound
from ...domain.ranges import Range, subtract, total
from ...domain.times import HOUR_MS
from ...domain.topic import Topic
from ...ports.world import Blobs

T = TypeVar("T")
MOST_DAYS = 31
_MANIFESTS = "archive/manifests/"
_PROOF = "archive/proved.json"
_Ends = list[tuple[int, int]]  # ranges with both their ends, as the archive's job writes them


class _Rows(msgspec.Struct, array_like=True):
    count: int


class _Table(msgspec.Struct):
    topics: dict[str, _Rows] = {}


class _Shard(msgspec.Struct, array_like=True):
    topic: str
    topic_uid: str
    shard: int
    begin: int
    ranges: _Ends
    voids: int
    missing: _Ends

    @property
    def key(self) -> str:
        return f"{self.topic}:{self.topic_uid}/{self.shard}"


class _Manifest(msgspec.Struct):
    """What is asked of a manifest; it has more."""

    day: str
    until_hour: int
    tables: dict[str, _Table]
    shards: list[_Shard] = []
    damaged: list[str] = []
    bodies_missing: list[str] = []
    written_ms: int = 0


class _Proof(msgspec.Struct):
    ranges: dict[str, _Ends] = {}


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


@dataclass(frozen=True, slots=True)
class ArchiveDays:
    """Reads only, and nothing of the messages."""

    blobs: Blobs

    def back_from(self, last: date, count: int) -> list[tuple[str, ArchivedDay | None]]:
        """`count` days back from one, the latest first, each with what is archived of it; None: nothing is. A manifest
        that cannot be read counts as damaged. One object a day, and one more where something was missing. Raises
        Unavailable."""
        days = [(last - timedelta(days=n)).isoformat() for n in range(count)]
        manifests = {day: self._manifest(day) for day in days}
        proof = None  # the offsets that are in the archive by now; none where that cannot be read
        if any(shard.missing for each in manifests.values() if each for shard in each.shards):
            proof = self._read(_PROOF, _Proof)
        ends = proof.ranges if proof else {}
        return [(day, _day(day, each, ends) if each else None) for day, each in manifests.items()]

    def oldest(self) -> str:
        """The first day that is archived; behind all days where none is. One listing. Raises Unavailable."""
        names = self.blobs.names(_MANIFESTS, "", 1)
        return names[0].removeprefix(_MANIFESTS)[:10] if names else "9"

    def counts_at(self, topic: Topic, at_ms: int) -> PastCounts:
        """A topic's counts at the last full hour before that time, UTC, as the report has stored them
        (docs/report.md): one small object. Raises NotFound if there are none that can be read: the next report writes
        them again."""
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
        counts = self._read(f"reports/hours/day={at.date()}/{topic.name}.json", _Hours)
        groups = {
            name: {state: numbers[at.hour] for state, numbers in states.items()}
            for name, states in (counts.groups if counts else {}).items()
            if all(at.hour < len(numbers) for numbers in states.values())
        }
        if not counts or not groups:
            raise _not_counted(topic, at)
        since = datetime.combine(counts.since, time(), UTC)
        return PastCounts(at_ms // HOUR_MS * HOUR_MS, int(since.timestamp()) * 1000, counts.complete, groups)

    def _manifest(self, day: str) -> _Manifest | None:
        name = f"{_MANIFESTS}{day}.json"
        return self._read(name, _Manifest, _Manifest(day, 0, {}, damaged=[name]))

    def _read(self, name: str, kind: type[T], unreadable: T | None = None) -> T | None:
        """An object of the bucket; None if it is not there."""
        raw = self.blobs.get(name)
        try:
            return strict_json.decoded(raw, kind) if raw else None
        except (msgspec.DecodeError, UnicodeDecodeError):
            return unreadable


def _day(day: str, manifest: _Manifest, ends: Mapping[str, _Ends]) -> ArchivedDay:
    begin_ms = int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()) * 1000
    known_until_ms = min(begin_ms + manifest.until_hour * HOUR_MS, max(begin_ms, manifest.written_ms))
    rows = {
        table: {topic: rows.count for topic, rows in manifest.tables.get(table, _Table()).topics.items()}
        for table in ("messages", "deliveries")
    }
    missing_offsets: defaultdict[str, int] = defaultdict(int)
    for shard in manifest.shards:
        lacking_ranges = subtract(_half_open(shard.missing), tuple(_half_open(ends.get(shard.key, ()))))
        missing_offsets[shard.topic] += total(lacking_ranges)
    topics = {
        name: TopicDay(rows["messages"].get(name, 0), rows["deliveries"].get(name, 0), missing_offsets[name])
        for name in sorted({*rows["messages"], *rows["deliveries"], *missing_offsets})
    }
    return ArchivedDay(
        day=manifest.day,
        until_hour=manifest.until_hour,
        written_ms=manifest.written_ms,
        known_until_ms=known_until_ms,
        is_closed=known_until_ms == begin_ms + WHOLE_DAY * HOUR_MS,
        damaged=len(manifest.damaged),
        bodies_missing=len(manifest.bodies_missing),
        topics=topics,
    )


def _half_open(ranges: Sequence[tuple[int, int]]) -> list[Range]:
    return [(first, last + 1) for first, last in ranges]


def _not_counted(topic: Topic, at: datetime) -> NotFound:
    moment = f"{at:%Y-%m-%dT%H:%M:%SZ}"
    return NotFound(
        "NOT_ARCHIVED",
        f"Topic {topic.name!r} was not counted for {moment}: the report, which follows the archive, counts the full "
        f'hours of its days (`make archive report`). `make asof ARGS="--topic {topic.name} --at {moment}"` counts '
        "that very moment, from the archive.",
    )
