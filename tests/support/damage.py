"""Rows that are not as they were written: damaged, or of a later release."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from chalicelib.adapters import Adapters
from chalicelib.domain.append import KeyEntry
from chalicelib.domain.audit import AuditEntry, month_of
from chalicelib.domain.meter import Level
from chalicelib.domain.segment import ShardKey
from chalicelib.domain.topic import CursorKey
from chalicelib.store.attributes import Item, text
from chalicelib.store.layout import cursor_item_key, key_home, record_key, segment_key


class Holder(Protocol):
    """What has a store."""

    @property
    def adapters(self) -> Adapters: ...


Change = Callable[[Item], Item]


def change_row(stage: Holder, shard: ShardKey, first: int, change: Change) -> None:
    """Change a stored row of the log, behind every process's back."""
    log: Any = stage.adapters.log
    _change(log._dynamo, log._table, segment_key(shard, first), change)


def change_letter(stage: Holder, key: CursorKey, offset: int, change: Change) -> None:
    """The same for a dead letter."""
    records: Any = stage.adapters.records
    _change(records._dynamo, records._table, record_key(key, offset, dead=True), change)


def change_record(stage: Holder, key: CursorKey, offset: int, change: Change) -> None:
    """The same for a record."""
    records: Any = stage.adapters.records
    _change(records._dynamo, records._table, record_key(key, offset), change)


def change_cursor(stage: Holder, key: CursorKey, change: Change) -> None:
    """The same for a cursor."""
    cursors: Any = stage.adapters.cursors
    _change(cursors._dynamo, cursors._table, cursor_item_key(key), change)


def change_control(stage: Holder, pk: str, sk: str, change: Change) -> None:
    """The same for a row of the control data."""
    dynamo: Any = stage.adapters.log._dynamo
    _change(dynamo, dynamo.tables.control, {"pk": {"S": pk}, "sk": {"S": sk}}, change)


def change_transaction(stage: Holder, transaction_id: str, change: Change) -> None:
    """The same for a transaction, on DynamoDB."""
    transactions: Any = stage.adapters.transactions
    _change(transactions._dynamo, transactions._table, {"t": {"S": transaction_id}}, change)


def change_reading(stage: Holder, topic_uid: str, level: Level, at_ms: int, change: Change) -> None:
    """The same for a reading of a topic's meters, which is a row on DynamoDB only."""
    readings: Any = stage.adapters.readings
    start_ms = at_ms // level.every_ms * level.every_ms
    key = {"r": text(f"meter#{topic_uid}#{level.name}"), "k": text(f"{start_ms:015d}")}
    _change(readings._dynamo, readings._table, key, change)


def change_round(stage: Holder, home: str, key: str, change: Change) -> None:
    """The same for a row of the scheduled jobs, on DynamoDB."""
    rounds: Any = stage.adapters.rounds
    _change(rounds._dynamo, rounds._table, {"r": text(home), "k": text(key)}, change)


def change_audit(stage: Holder, entry: AuditEntry, change: Change) -> None:
    """The same for an entry of the audit trail, on DynamoDB."""
    audit: Any = stage.adapters.audit
    _change(audit._dynamo, audit._table, {"d": text(month_of(entry.at_ms)), "k": text(entry.key)}, change)


def change_account(stage: Holder, account: str, change: Change) -> None:
    """The same for the account of a rate limit, on DynamoDB."""
    buckets: Any = stage.adapters.token_buckets
    _change(buckets._dynamo, buckets._table, {"r": text(account)}, change)


def change_key_entry(stage: Holder, entry: KeyEntry, change: Change) -> None:
    """The same for an entry of the index of keys, on DynamoDB."""
    keys: Any = stage.adapters.keys
    row_key = {"k": text(key_home(entry.topic_uid, entry.key)), "o": text(entry.sort_key)}
    _change(keys._dynamo, keys._table, row_key, change)


def _change(dynamo: Any, table: str, key: Item, change: Change) -> None:
    item = dynamo.call("get_item", TableName=table, Key=key, ConsistentRead=True)["Item"]
    dynamo.call("put_item", TableName=table, Item={**change(item), **key})


def without(name: str) -> Change:
    return lambda item: {n: value for n, value in item.items() if n != name}


def having(name: str, value: dict[str, Any]) -> Change:
    return lambda item: {**item, name: value}


NEWER = having("v", {"N": "2"})
"""What a later release has written in a format of its own."""
