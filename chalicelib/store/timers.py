"""Timers on DynamoDB (layout: table `timers`)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from ..domain.timer import Timer, TimerKind
from . import codec
from .dynamo import Dynamo
from .failures import ConditionFailed
from .layout import (
    FORMAT,
    Item,
    int_of,
    lease_key,
    number,
    packed,
    payload_of,
    shard_of,
    text,
    text_of,
    timer_key,
)


class DynamoTimers:
    """ports.Timers: one write unit for a small timer, one query for what is due."""

    def __init__(self, dynamo: Dynamo) -> None:
        self._dynamo = dynamo
        self._table = dynamo.tables.timers

    def file(self, timers: Sequence[Timer]) -> None:
        different = {(timer.due_ms, timer.id): _item(timer) for timer in timers}
        self._dynamo.put(self._table, list(different.values()))

    def due(self, fragment: int, until_ms: int, limit: int) -> list[Timer]:
        return [_timer(item) for item in self._before(fragment, f"{until_ms + 1:015d}", limit)]

    def next_ms(self, fragment: int, *, consistent: bool = False) -> int | None:
        first = self._before(fragment, "~", 1, consistent=consistent)
        return next((_timer(item).due_ms for item in first), None)

    def find(self, due_ms: int, timer_id: str) -> Timer | None:
        key = timer_key(due_ms, timer_id)
        answer = self._dynamo.call("get_item", TableName=self._table, Key=key, ConsistentRead=True)
        return _timer(answer["Item"]) if "Item" in answer else None

    def drop(self, timers: Sequence[Timer]) -> None:
        different = {(timer.due_ms, timer.id): timer_key(timer.due_ms, timer.id) for timer in timers}
        self._dynamo.delete(self._table, list(different.values()))

    def hold(self, fragment: int, owner: str, now_ms: int, until_ms: int) -> bool:
        try:
            self._dynamo.call(
                "update_item",
                TableName=self._table,
                Key=lease_key(fragment),
                UpdateExpression="SET o = :o, u = :u, v = :v",
                ConditionExpression="attribute_not_exists(o) OR o = :o OR u <= :now",
                ExpressionAttributeValues={
                    ":o": text(owner),
                    ":u": number(until_ms),
                    ":now": number(now_ms),
                    ":v": {"N": FORMAT},
                },
            )
        except ConditionFailed:
            return False
        return True

    def let_go(self, fragment: int, owner: str) -> None:
        try:
            self._dynamo.call(
                "delete_item",
                TableName=self._table,
                Key=lease_key(fragment),
                ConditionExpression="o = :o",
                ExpressionAttributeValues={":o": text(owner)},
            )
        except ConditionFailed:
            return

    def _before(self, fragment: int, end: str, limit: int, *, consistent: bool = True) -> list[Item]:
        """The first rows whose sort keys lie before `end`: never the lease's."""
        found = self._dynamo.query(
            TableName=self._table,
            KeyConditionExpression="f = :f AND t < :end",
            ExpressionAttributeValues={":f": text(str(fragment)), ":end": text(end)},
            Limit=limit,
            ConsistentRead=consistent,
        )
        return list(islice(found, limit))


def timer_put(table: str, timer: Timer) -> dict[str, Any]:
    """The transaction's action that files a timer."""
    return {"Put": {"TableName": table, "Item": _item(timer)}}


def timer_delete(table: str, timer: Timer) -> dict[str, Any]:
    """The transaction's action that takes a timer away, if it is there."""
    return {
        "Delete": {
            "TableName": table,
            "Key": timer_key(timer.due_ms, timer.id),
            "ConditionExpression": "attribute_exists(f)",
        }
    }


def _item(timer: Timer) -> Item:
    item = {
        **timer_key(timer.due_ms, timer.id),
        "k": text(timer.kind),
        "s": text(str(timer.shard)),
        "v": {"N": FORMAT},
    }
    optional = {"g": timer.group_uid, "c": timer.consumer_uid}
    item.update({name: text(uid) for name, uid in optional.items() if uid})
    if timer.keep_days:
        item["d"] = number(timer.keep_days)
    if timer.draft:
        item["m"] = packed(codec.pack([timer.draft]).payload)
    return item


def _timer(item: Item) -> Timer:
    due, _, timer_id = item["t"]["S"].partition("#")
    payload = payload_of(item)
    return Timer(
        due_ms=int(due),
        id=timer_id,
        kind=TimerKind(item["k"]["S"]),
        shard=shard_of(item["s"]["S"]),
        draft=codec.unpack(payload)[0] if payload else None,
        keep_days=int_of(item, "d"),
        group_uid=text_of(item, "g") or "",
        consumer_uid=text_of(item, "c") or "",
    )
