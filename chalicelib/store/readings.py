"""Readings of meters on DynamoDB (layout: table `rounds`)."""

from __future__ import annotations

import msgspec

from ..domain.meter import GroupReading, Level, Reading
from .dynamo import Dynamo
from .layout import FORMAT, Item, int_of, number, text


class DynamoReadings:
    """ports.Readings: a write unit for a reading; half a read unit for 4 KB of readings, some 40 of them."""

    def __init__(self, dynamo: Dynamo) -> None:
        self._dynamo = dynamo
        self._table = dynamo.tables.rounds

    def keep(self, topic_uid: str, level: Level, reading: Reading) -> None:
        start_ms = reading.at_ms // level.every_ms * level.every_ms
        groups = {name: [each.settled, each.backlog, each.retried] for name, each in reading.groups.items()}
        item = {
            "r": text(_home(topic_uid, level)),
            "k": text(f"{start_ms:015d}"),
            "a": number(reading.at_ms),
            "n": number(reading.accepted),
            "g": text(msgspec.json.encode(groups).decode()),
            "x": number((reading.at_ms + level.keep_ms) // 1000),
            "v": {"N": FORMAT},
        }
        self._dynamo.put(self._table, [item])

    def latest(self, topic_uid: str, level: Level, most: int) -> list[Reading]:
        items = self._dynamo.page(
            TableName=self._table,
            KeyConditionExpression="r = :r",
            ExpressionAttributeValues={":r": text(_home(topic_uid, level))},
            ScanIndexForward=False,
            Limit=most,
        )
        return [_reading(item) for item in reversed(items)]


def _home(topic_uid: str, level: Level) -> str:
    return f"meter#{topic_uid}#{level.name}"


def _reading(item: Item) -> Reading:
    groups = msgspec.json.decode(item["g"]["S"], type=dict[str, tuple[int, int, int]])
    return Reading(
        int_of(item, "a"),
        int_of(item, "n"),
        {name: GroupReading(*numbers) for name, numbers in groups.items()},
    )
