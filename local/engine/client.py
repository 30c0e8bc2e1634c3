"""The engine by the methods of boto3's clients of DynamoDB and its streams: their arguments, answers and errors."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from functools import wraps
from types import SimpleNamespace
from typing import Any

from .core import ARN, Change, Engine
from .errors import Refused, invalid, unknown
from .expressions import Condition, Given, projected, projection
from .tables import Index, Table, key_range
from .values import Item, stored_item

_PAGE_BYTES = 1 << 20
_READ_BYTES = 4096
_BATCH, _TRANSACTION = 25, 100
_LEGACY = {"AttributesToGet", "AttributeUpdates", "ConditionalOperator", "Expected", "KeyConditions"}
_FILTERS = {"QueryFilter", "ScanFilter", "Segment"}
# Parameters of DynamoDB that change an answer, and that the engine does not have.
_UNKNOWN = _LEGACY | _FILTERS | {"GlobalSecondaryIndexUpdates", "LocalSecondaryIndexes"}

Answer = dict[str, Any]
Method = Callable[..., Answer]


def operation(method: Callable[[Any, Mapping[str, Any]], Answer]) -> Method:
    """A method of a client, which raises ClientError."""
    name = "".join(word.title() for word in method.__name__.split("_"))

    @wraps(method)
    def call(self: Any, **request: Any) -> Answer:
        _check_known(name, request)
        try:
            answer = method(self, request)
        except Refused as refusal:
            raise refusal.as_client_error(name) from None
        except KeyError as error:  # a request without what it must have
            raise invalid(f"{name} lacks {error}").as_client_error(name) from error
        answer["ResponseMetadata"] = {"HTTPStatusCode": 200, "RetryAttempts": 0}
        return answer

    return call


def _check_known(what: str, request: Mapping[str, Any]) -> None:
    if not _UNKNOWN.isdisjoint(request):
        raise unknown(f"{min(_UNKNOWN & request.keys())} of {what}")


class Client:
    """boto3's DynamoDB client, as far as Headrace uses it. Raises ClientError, and NotImplementedError for a request
    that the engine does not know."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    # Items

    @operation
    def get_item(self, request: Mapping[str, Any]) -> Answer:
        table = self.engine.table(request["TableName"])
        given = Given.of(request)
        names = projection(request.get("ProjectionExpression"), given)
        given.check_all_used()
        key, _ = stored_item(request["Key"])
        table.keys.check_only(key)
        with self.engine.reading() as connection:
            row = table.get(connection, table.keys.bytes_of(key))
        answer = {"Item": projected(row.item, names)} if row is not None else {}
        return _with_capacity(answer, request, table.name, _read_units(row.size if row else 1, request))

    @operation
    def put_item(self, request: Mapping[str, Any]) -> Answer:
        return self._write("Put", request)

    @operation
    def update_item(self, request: Mapping[str, Any]) -> Answer:
        return self._write("Update", request)

    @operation
    def delete_item(self, request: Mapping[str, Any]) -> Answer:
        return self._write("Delete", request)

    def _write(self, kind: str, request: Mapping[str, Any]) -> Answer:
        wanted = request.get("ReturnValues", "NONE")
        if wanted not in ("NONE", *(("ALL_NEW", "UPDATED_NEW") if kind == "Update" else ())):
            raise unknown(f"ReturnValues {wanted} of {kind}")
        (change,) = self.engine.write(self.engine.prepared(kind, request))
        update, new = change.write.update, change.new or {}
        found: Item = {}
        if update is not None and wanted != "NONE":
            found = {name: new[name] for name in new if wanted == "ALL_NEW" or name in update.attributes}
        answer = {"Attributes": found} if found else {}
        return _with_capacity(answer, request, change.write.table.name, _write_units([change]))

    @operation
    def batch_write_item(self, request: Mapping[str, Any]) -> Answer:
        actions = [
            (kind.removesuffix("Request"), {"TableName": table, **action})
            for table, requests in request["RequestItems"].items()
            for each in requests
            for kind, action in each.items()
        ]
        if not 1 <= len(actions) <= _BATCH:
            raise invalid("Too many items requested for the BatchWriteItem call" if actions else "no items")
        writes = [self.engine.prepared(kind, action) for kind, action in actions]
        if len({(write.table.name, write.place) for write in writes}) < len(writes):
            raise invalid("Provided list of item keys contains duplicates")
        units = _write_units(self.engine.write(*writes))
        return _with_capacity({"UnprocessedItems": {}}, request, writes[0].table.name, units)

    @operation
    def transact_write_items(self, request: Mapping[str, Any]) -> Answer:
        actions = [next(iter(each.items())) for each in request["TransactItems"]]
        if not 1 <= len(actions) <= _TRANSACTION:
            raise invalid("Member must have length less than or equal to 100, and at least 1")
        for kind, action in actions:
            _check_known(kind, action)
        writes = [self.engine.prepared(kind, action) for kind, action in actions]
        if len({(write.table.name, write.place) for write in writes}) < len(writes):
            raise invalid("Transaction request cannot include multiple operations on one item")
        changes = self.engine.transact(writes, request.get("ClientRequestToken"), request["TransactItems"])
        return _with_capacity({}, request, writes[0].table.name, 2 * _write_units(changes))

    # Lists

    @operation
    def query(self, request: Mapping[str, Any]) -> Answer:
        return self._list(request, request["KeyConditionExpression"])

    @operation
    def scan(self, request: Mapping[str, Any]) -> Answer:
        return self._list(request, None)

    def _list(self, request: Mapping[str, Any], text: str | None) -> Answer:
        table = self.engine.table(request["TableName"])
        index = table.index if "IndexName" in request else None
        if "IndexName" in request and (index is None or index.name != request["IndexName"] or text is None):
            raise invalid(f"The table does not have the specified index: {request['IndexName']}")
        if index and request.get("ConsistentRead"):
            raise invalid("Consistent reads are not supported on global secondary indexes")
        keys = index.keys if index else table.keys
        given = Given.of(request)
        of = key_range(text, given, keys.types) if text is not None else None
        filter_text = request.get("FilterExpression")
        filter_ = Condition(filter_text, given, "FilterExpression") if filter_text is not None else None
        if of and filter_ and (used := filter_.attributes & set(keys.names)):
            raise invalid(
                f"Filter Expression can only contain non-primary key attributes: Primary key attribute: {min(used)}"
            )
        wanted = projection(request.get("ProjectionExpression"), given)
        given.check_all_used()
        start = _start(request, table, index)
        forward = request.get("ScanIndexForward", True)
        with self.engine.reading() as connection:
            rows = table.rows(connection, index, of, start, forward=forward)
            found, size, is_cut = _page(rows, request.get("Limit"))
        items = [item for item in found if filter_ is None or filter_.holds(item)]
        answer: Answer = {"Count": len(items), "ScannedCount": len(found)}
        if request.get("Select") != "COUNT":
            answer["Items"] = [projected(item, wanted) for item in items]
        # DynamoDB sees that a range ends where its last key is in it, but not where it is of one key
        if is_cut and not (of and ("<=" if forward else ">=", keys.bytes_of(found[-1])[1]) in of.ends):
            names = dict.fromkeys((*keys.names, *table.keys.names))
            answer["LastEvaluatedKey"] = {name: found[-1][name] for name in names}
        return _with_capacity(answer, request, table.name, _read_units(size, request))

    # Tables

    @operation
    def create_table(self, request: Mapping[str, Any]) -> Answer:
        return {"TableDescription": self._described(self.engine.create(dict(request)))}

    @operation
    def delete_table(self, request: Mapping[str, Any]) -> Answer:
        name = self.engine.drop(request["TableName"]).name
        return {"TableDescription": {"TableName": name, "TableStatus": "DELETING"}}

    @operation
    def describe_table(self, request: Mapping[str, Any]) -> Answer:
        return {"Table": self._described(self.engine.table(request["TableName"]))}

    @operation
    def list_tables(self, request: Mapping[str, Any]) -> Answer:
        return {"TableNames": self.engine.tables}

    @operation
    def describe_time_to_live(self, request: Mapping[str, Any]) -> Answer:
        attribute = self.engine.table(request["TableName"]).ttl
        if attribute is None:
            return {"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}}
        return {"TimeToLiveDescription": {"TimeToLiveStatus": "ENABLED", "AttributeName": attribute}}

    @operation
    def update_time_to_live(self, request: Mapping[str, Any]) -> Answer:
        specification = request["TimeToLiveSpecification"]
        if not specification["Enabled"]:
            raise unknown("tables whose TimeToLive is taken back")
        if self.engine.table(request["TableName"]).ttl is not None:
            raise invalid("TimeToLive is already enabled")
        self.engine.expire_by(request["TableName"], specification["AttributeName"])
        return {"TimeToLiveSpecification": specification}

    def get_waiter(self, name: str) -> Any:
        """What waits for a table: it is there as soon as it was made."""
        if name != "table_exists":
            raise unknown(f"the waiter {name}")
        return SimpleNamespace(wait=lambda TableName, **_: self.describe_table(TableName=TableName))

    def _described(self, table: Table) -> Answer:
        definition = {name: value for name, value in table.definition.items() if name != "TimeToLive"}
        described = {**definition, "TableStatus": "ACTIVE", "TableArn": f"{ARN}{table.name}"}
        if feed := self.engine.feed_of(table):
            described["LatestStreamArn"] = feed.arn
        return described


class Streams:
    """boto3's client of DynamoDB's streams: each has one shard, which never ends."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @operation
    def describe_stream(self, request: Mapping[str, Any]) -> Answer:
        feed = self.engine.feed(request["StreamArn"])
        shard = {"ShardId": feed.shard, "SequenceNumberRange": {"StartingSequenceNumber": f"{1:021d}"}}
        shards = [] if request.get("ExclusiveStartShardId") else [shard]
        return {"StreamDescription": {"StreamArn": feed.arn, "StreamStatus": "ENABLED", "Shards": shards}}

    @operation
    def get_shard_iterator(self, request: Mapping[str, Any]) -> Answer:
        feed = self.engine.feed(request["StreamArn"])
        kind = request["ShardIteratorType"]
        if kind.endswith("_SEQUENCE_NUMBER"):
            number = int(request["SequenceNumber"]) + kind.startswith("AFTER")
        else:
            number = feed.first if kind == "TRIM_HORIZON" else feed.last + 1
        return {"ShardIterator": f"{feed.arn}|{number}"}

    @operation
    def get_records(self, request: Mapping[str, Any]) -> Answer:
        arn, _, text = request["ShardIterator"].rpartition("|")
        number = int(text)
        records = self.engine.feed(arn).from_number(number, request.get("Limit", 1000))
        return {"Records": records, "NextShardIterator": f"{arn}|{number + len(records)}"}


def _page(rows: Generator[tuple[int, Item]], limit: int | None) -> tuple[list[Item], int, bool]:
    """The items of a page, their size, and whether there may be more."""
    items: list[Item] = []
    bytes_ = 0
    with closing(rows):
        for size, item in rows:
            items.append(item)
            bytes_ += size
            if len(items) == limit or bytes_ > _PAGE_BYTES:
                return items, bytes_, True
    return items, bytes_, False


def _start(request: Mapping[str, Any], table: Table, index: Index | None) -> Item | None:
    if not request.get("ExclusiveStartKey"):
        return None
    start, _ = stored_item(request["ExclusiveStartKey"])
    names = {*table.keys.names, *(index.keys.names if index else ())}
    if start.keys() != names:
        raise invalid("The provided starting key is invalid")
    return start


def _read_units(size: int, request: Mapping[str, Any]) -> float:
    return -(-size // _READ_BYTES) * (1.0 if request.get("ConsistentRead") else 0.5)


def _write_units(changes: Sequence[Change]) -> int:
    """Of the larger one of the row before and after; an index whose keys it has: a row less, or more, or both."""
    rows = sum(max(1, -(-max(each.size, each.old.size if each.old else 0) // 1024)) for each in changes)
    return rows + sum(
        item is not None and set(index.keys.names) <= item.keys()
        for each in changes
        if (index := each.write.table.index)
        for item in (each.old.item if each.old else None, each.new)
    )


def _with_capacity(answer: Answer, request: Mapping[str, Any], table: str, units: float) -> Answer:
    if request.get("ReturnConsumedCapacity", "NONE") != "NONE":
        consumed = {"TableName": table, "CapacityUnits": float(units)}
        answer["ConsumedCapacity"] = consumed if "TableName" in request else [consumed]
    return answer
