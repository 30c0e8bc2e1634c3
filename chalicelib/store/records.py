"""Delivery records on DynamoDB (layout: table `records`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..domain.topic import CursorKey
from ..ports import Record
from .dynamo import Dynamo
from .layout import FORMAT, Item, int_of, number, record_key, text, text_of

DEAD = "DEAD"


class DynamoRecords:
    """ports.Records."""

    def __init__(self, dynamo: Dynamo) -> None:
        self._dynamo = dynamo
        self._table = dynamo.tables.records

    def get(self, key: CursorKey, offset: int) -> Record | None:
        answer = self._dynamo.call("get_item", TableName=self._table, Key=record_key(key, offset))
        return _record(answer["Item"]) if "Item" in answer else None

    def count_dead(self, topic_uid: str, group_uid: str) -> int:
        total, start = 0, None
        while True:
            answer = self._dynamo.call(
                "query",
                TableName=self._table,
                Select="COUNT",
                KeyConditionExpression="g = :g AND begins_with(k, :t)",
                ExpressionAttributeValues={":g": text(f"{group_uid}#dead"), ":t": text(f"{topic_uid}/")},
                **({"ExclusiveStartKey": start} if start else {}),
            )
            total += int(answer["Count"])
            if not (start := answer.get("LastEvaluatedKey")):
                return total


def record_puts(table: str, key: CursorKey, records: Sequence[Record]) -> list[dict[str, Any]]:
    """The transaction's actions that store these records; a dead one also enters the dead-letter index."""
    puts = []
    for record in records:
        item = _item(record)
        puts.append({"Put": {"TableName": table, "Item": {**record_key(key, record.offset), **item}}})
        if record.status == DEAD:
            dead = record_key(key, record.offset, dead=True)
            puts.append({"Put": {"TableName": table, "Item": {**dead, "v": {"N": FORMAT}}}})
    return puts


def _item(record: Record) -> Item:
    item: Item = {
        "j": text(record.status),
        "n": number(record.attempts),
        "a": number(record.at_ms),
        "v": {"N": FORMAT},
    }
    optional = {"q": record.reason, "h": record.last_error}
    item.update({name: text(value) for name, value in optional.items() if value is not None})
    if record.next_ms is not None:
        item["d"] = number(record.next_ms)
    return item


def _record(item: Item) -> Record:
    _, shard, offset, *consumer = item["k"]["S"].split("/")
    return Record(
        shard=int(shard),
        offset=int(offset),
        status=text_of(item, "j") or "",
        attempts=int_of(item, "n"),
        at_ms=int_of(item, "a"),
        consumer_uid=consumer[0] if consumer else "",
        reason=text_of(item, "q"),
        last_error=text_of(item, "h"),
        next_ms=int_of(item, "d") if "d" in item else None,
    )
