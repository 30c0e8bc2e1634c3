"""Rows that are not as they were written: damaged, or of a later release."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from chalicelib.adapters import Adapters
from chalicelib.domain.append import KeyEntry
from chalicelib.domain.meter import Level
from chalicelib.domain.segment import ShardKey
from chalicelib.domain.topic import CursorKey
from chalicelib.store.attributes import Item, text
from chalicelib.store.layout import cursor_item_key, definitions, key_home, segment_key


class Holder(Protocol):
    """What has a store."""

    @property
    def adapters(self) -> Adapters: ...


Change = Callable[[Item], Item]


def change_row(stage: Holder, shard: ShardKey, first: int, change: Change) -> None:
    """Change a stored row of the log, behind every process's back."""
    _change_in(stage, "log", segment_key(shard, first), change)


def change_cursor(stage: Holder, key: CursorKey, change: Change) -> None:
    """The same for a cursor."""
    _change_in(stage, "cursors", cursor_item_key(key), change)


def change_control(stage: Holder, pk: str, sk: str, change: Change) -> None:
    """The same for a row of the control data."""
    _change_in(stage, "control", {"pk": text(pk), "sk": text(sk)}, change)


def change_reading(stage: Holder, topic_uid: str, level: Level, at_ms: int, change: Change) -> None:
    """The same for a reading of a topic's meters."""
    start_ms = at_ms // level.every_ms * level.every_ms
    key = {"r": text(f"meter#{topic_uid}#{level.name}"), "k": text(f"{start_ms:015d}")}
    _change_in(stage, "rounds", key, change)


def change_account(stage: Holder, account: str, change: Change) -> None:
    """The same for the account of a rate limit."""
    _change_in(stage, "rates", {"r": text(account)}, change)


def change_key_entry(stage: Holder, entry: KeyEntry, change: Change) -> None:
    """The same for an entry of the index of keys."""
    row_key = {"k": text(key_home(entry.topic_uid, entry.key)), "o": text(entry.sort_key)}
    _change_in(stage, "keys", row_key, change)


def _change_in(stage: Holder, table: str, key: Item, change: Change) -> None:
    dynamo: Any = stage.adapters.log._dynamo
    _change(dynamo, getattr(dynamo.tables, table), key, change)


def _change(dynamo: Any, table: str, key: Item, change: Change) -> None:
    item = dynamo.call("get_item", TableName=table, Key=key, ConsistentRead=True)["Item"]
    dynamo.call("put_item", TableName=table, Item={**change(item), **key})


class Damage:
    """Rows that stay damaged until the test restores them."""

    def __init__(self, stage: Holder) -> None:
        self._dynamo: Any = stage.adapters.log._dynamo
        self._keys = {
            each["TableName"]: [key["AttributeName"] for key in each["KeySchema"]]
            for each in definitions(self._dynamo.tables)
        }
        self._done: list[tuple[str, Item, Item, Item]] = []

    def rows(self, table: str) -> list[Item]:
        """The rows of a table ("log", "cursors", ...)."""
        rows: list[Item] = []
        start: dict[str, Any] = {}
        while True:
            page = self._dynamo.call("scan", TableName=self._name(table), **start)
            rows += page["Items"]
            if "LastEvaluatedKey" not in page:
                return rows
            start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    def rewind(self, table: str, rows: Sequence[Item]) -> None:
        """Have a table hold what it held once."""
        name = self._name(table)
        keys = [{each: row[each] for each in self._keys[name]} for row in self.rows(table)]
        if keys:
            self._dynamo.delete(name, keys)
        if rows:
            self._dynamo.put(name, rows)

    def row(self, table: str, key: Item) -> Item:
        """The row of a key."""
        item: Item = self._found(self._name(table), key)["Item"]
        return item

    def change(self, table: str, row: Item, change: Change) -> None:
        """Damage one of these rows."""
        name = self._name(table)
        key = {each: row[each] for each in self._keys[name]}
        damaged = {**change(row), **key}
        self._done.append((name, key, row, damaged))
        self._dynamo.call("put_item", TableName=name, Item=damaged)

    def heal(self) -> None:
        """Restore what is as the damage left it. What was written since stays."""
        while self._done:
            name, key, before, after = self._done.pop()
            found = self._found(name, key).get("Item")
            if found is not None:
                self._dynamo.call("put_item", TableName=name, Item=_restored(before, after, found))

    def _name(self, table: str) -> str:
        return str(getattr(self._dynamo.tables, table))

    def _found(self, name: str, key: Item) -> dict[str, Any]:
        answer: dict[str, Any] = self._dynamo.call("get_item", TableName=name, Key=key, ConsistentRead=True)
        return answer


def _restored(before: Item, after: Item, found: Item) -> Item:
    """What was found, with each value that the damage changed as it was before."""
    restored = dict(found)
    for name in {**before, **after}:
        old, damaged, value = before.get(name), after.get(name), found.get(name)
        if old != damaged == value:
            restored.pop(name, None)
            restored.update({name: old} if old is not None else {})
        elif old and damaged and value and "M" in old.keys() & damaged.keys() & value.keys():
            restored[name] = {"M": _restored(old["M"], damaged["M"], value["M"])}
    return restored


def without(name: str) -> Change:
    return lambda item: {n: value for n, value in item.items() if n != name}


def having(name: str, value: dict[str, Any]) -> Change:
    return lambda item: {**item, name: value}


NEWER = having("v", {"N": "2"})
"""What a later release has written in a format of its own."""
