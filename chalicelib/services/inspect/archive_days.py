"""The archive's days, as its manifests tell them: one object a day, read from the bucket (a folder locally)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta

import msgspec

from ...domain import strict_json
from ...domain.archive import WHOLE_DAY, ArchivedDay, TopicDay
from ...domain.ranges import Range, subtract, total
from ...domain.times import HOUR_MS
from ...ports.world import Blobs

MOST_DAYS = 31
_MANIFEST = "archive/manifests/{day}.json"
_PROOF = "archive/proved.json"
_Ends = list[tuple[int, int]]  # ranges with both their ends, as the archive's job writes them


class _Part(msgspec.Struct):
    topic: str
    rows: int


class _Shard(msgspec.Struct):
    topic: str
    topic_uid: str
    shard: int
    missing: _Ends = []

    @property
    def key(self) -> str:
        return f"{self.topic}:{self.topic_uid}/{self.shard}"


class _Manifest(msgspec.Struct):
    """What is asked of a manifest; it has more."""

    day: str
    until_hour: int
    tables: dict[str, list[_Part]]
    shards: list[_Shard] = []
    damaged: list[str] = []
    bodies_missing: list[str] = []
    written_ms: int = 0


class _Proof(msgspec.Struct):
    ranges: dict[str, _Ends] = {}


class ArchiveDays:
    """Reads manifests; nothing here changes anything, and nothing is read of the messages."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def back_from(self, last: date, count: int) -> list[tuple[str, ArchivedDay | None]]:
        """`count` days back from one, the latest first, each with what is archived of it; None: nothing is. A manifest
        that cannot be read counts as damaged. One object a day, and one more where something was missing. Raises
        Unavailable."""
        days = [(last - timedelta(days=n)).isoformat() for n in range(count)]
        manifests = {day: self._manifest(day) for day in days}
        ends: Mapping[str, _Ends] = {}
        if any(shard.missing for each in manifests.values() if each for shard in each.shards):
            ends = self._archived_by_now()
        return [(day, _day(day, each, ends) if each else None) for day, each in manifests.items()]

    def _manifest(self, day: str) -> _Manifest | None:
        name = _MANIFEST.format(day=day)
        raw = self._blobs.get(name)
        if not raw:
            return None
        try:
            return strict_json.decoded(raw, _Manifest)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return _Manifest(day, 0, {}, damaged=[name])

    def _archived_by_now(self) -> Mapping[str, _Ends]:
        """By shard the offsets that are in the archive by now; none where that cannot be read."""
        try:
            return strict_json.decoded(self._blobs.get(_PROOF) or b"{}", _Proof).ranges
        except (msgspec.DecodeError, UnicodeDecodeError):
            return {}


def _day(day: str, manifest: _Manifest, ends: Mapping[str, _Ends]) -> ArchivedDay:
    begin_ms = int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()) * 1000
    known_until_ms = min(begin_ms + manifest.until_hour * HOUR_MS, max(begin_ms, manifest.written_ms))
    rows = {
        table: {part.topic: part.rows for part in manifest.tables.get(table, ())}
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
