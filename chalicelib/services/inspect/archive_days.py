"""The archive's days, as its manifests tell them: one object a day, read from the bucket (a folder locally)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import msgspec

from ...domain.archive import ArchivedDay, TopicDay
from ...domain.ranges import Range, subtract, total
from ...ports.world import Blobs

MOST_DAYS = 31
_MANIFEST = "archive/manifests/{day}.json"
_PROOF = "archive/proved.json"


class ArchiveDays:
    """Reads manifests; nothing here changes anything, and nothing is read of the messages."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def back_from(self, last: date, count: int) -> list[tuple[str, ArchivedDay | None]]:
        """`count` days back from one, the latest first, each with what is archived of it; None: nothing is. One object
        a day, and one more where something was missing. Raises Unavailable."""
        days = [(last - timedelta(days=n)).isoformat() for n in range(count)]
        manifests = {day: raw for day in days if (raw := self._json(_MANIFEST.format(day=day)))}
        found_since: Mapping[str, Any] = {}
        if any(shard.get("missing") for raw in manifests.values() for shard in raw.get("shards", ())):
            found_since = (self._json(_PROOF) or {}).get("ranges", {})
        return [(day, _day(manifests[day], found_since) if day in manifests else None) for day in days]

    def _json(self, name: str) -> dict[str, Any] | None:
        raw = self._blobs.get(name)
        return msgspec.json.decode(raw, type=dict[str, Any]) if raw else None


def _day(raw: Mapping[str, Any], found_since: Mapping[str, Any]) -> ArchivedDay:
    rows: dict[str, dict[str, int]] = {
        table: {part["topic"]: part["rows"] for part in raw["tables"].get(table, ())}
        for table in ("messages", "deliveries")
    }
    missing: defaultdict[str, int] = defaultdict(int)
    for shard in raw.get("shards", ()):
        missing[shard["topic"]] += _lacking(shard, found_since)
    topics = {
        name: TopicDay(rows["messages"].get(name, 0), rows["deliveries"].get(name, 0), missing[name])
        for name in sorted({*rows["messages"], *rows["deliveries"], *missing})
    }
    return ArchivedDay(
        raw["day"],
        raw["until_hour"],
        raw.get("written_ms", 0),
        len(raw.get("damaged", ())),
        len(raw.get("bodies_missing", ())),
        topics,
    )


def _lacking(shard: Mapping[str, Any], found_since: Mapping[str, Any]) -> int:
    """How many of a shard's missing offsets no later day has found. Ranges in the files hold both their ends."""
    if not shard.get("missing"):
        return 0
    known = found_since.get(f"{shard['topic']}:{shard['topic_uid']}/{shard['shard']}", ())
    return total(subtract(_half_open(shard["missing"]), tuple(_half_open(known))))


def _half_open(ranges: Sequence[Sequence[int]]) -> list[Range]:
    return [(first, last + 1) for first, last in ranges]
