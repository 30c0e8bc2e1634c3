"""Readings of meters on DynamoDB (layout: table `rounds`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec

from ..domain import strict_json
from ..domain.meter import GroupReading, Level, Reading
from . import codec
from .attributes import Item, attributes, int_of, rows, text
from .dynamo import TableAccess
from .layout import FORMAT

_MOST_BYTES = 512
"""Of a row, with the backlogs by shard: 170 rows, a week's or a day's, are eleven read units then."""


class Readings(TableAccess, table="rounds"):
    """Readings of topics' meters, for charts only; they may be a moment old. A write unit for a reading; half a read
    unit for 4 KB of readings, some 10 to 40 of them."""

    def keep(self, topic_uid: str, level: Level, reading: Reading) -> None:
        """Store a reading, in the place of one of the same hour (ten minutes, minute)."""
        self._dynamo.put(self._table, [_item(topic_uid, level, reading)])

    def latest(self, topic_uid: str, level: Level, most: int) -> list[Reading]:
        """The last readings of a level, in order of time, without those that cannot be read."""
        request = rows(self._table, "r = :r", r=_home(topic_uid, level))
        items = self._dynamo.page(**request, ScanIndexForward=False, Limit=most)
        readings = self._dynamo.readable(reversed(items), partial(codec.decoded, "rounds", decode=_reading))
        return list(readings)


def _home(topic_uid: str, level: Level) -> str:
    return f"meter#{topic_uid}#{level.name}"


def _item(topic_uid: str, level: Level, reading: Reading) -> Item:
    start_ms = reading.at_ms // level.every_ms * level.every_ms
    groups = {name: [each.settled, each.backlog, each.retried] for name, each in reading.groups.items()}
    item = {
        **attributes(r=_home(topic_uid, level), k=f"{start_ms:015d}", a=reading.at_ms, n=reading.accepted),
        **attributes(g=msgspec.json.encode(groups).decode(), x=(reading.at_ms + level.keep_ms) // 1000),
        "v": {"N": FORMAT},
    }
    if by_shard := _by_shard(reading.groups, _MOST_BYTES - _bytes(item)):
        item["b"] = text(by_shard)
    return item


def _reading(item: Item) -> Reading:
    groups = strict_json.decoded(item["g"]["S"], dict[str, tuple[int, int, int]])
    parts = strict_json.decoded(item["b"]["S"], list[tuple[int, ...]]) if "b" in item else [()] * len(groups)
    pairs = zip(groups.items(), parts, strict=True)
    readings = {name: GroupReading(*numbers, by_shard) for (name, numbers), by_shard in pairs}
    return Reading(int_of(item, "a"), int_of(item, "n"), readings)


def _by_shard(groups: Mapping[str, GroupReading], room: int) -> str | None:
    """The backlogs by shard as they are stored: those that are behind, the most of them first, while there is room."""
    parts = dict.fromkeys(groups, b"[]")
    room -= sum(len(part) + 1 for part in parts.values()) + 2
    for name, each in sorted(groups.items(), key=lambda entry: -entry[1].backlog):
        part = msgspec.json.encode(each.by_shard)
        if each.backlog and len(part) <= room:
            parts[name] = part
            room -= len(part)
    is_any_behind = any(part != b"[]" for part in parts.values())
    return f"[{b','.join(parts.values()).decode()}]" if is_any_behind else None


def _bytes(item: Item) -> int:
    """The size of a row in bytes, about as DynamoDB counts it."""
    return sum(len(name) + len(str(value).encode()) for name, each in item.items() for value in each.values())
