"""The engine by the methods of boto3's clients of DynamoDB and its streams: their arguments, answers and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from functools import wraps
from typing import Any

from .changes import start_of
from .core import ARN, Change, Engine
from .errors import Refused, invalid, unknown
from .expressions import Condition, Given, Projection
from .tables import Index, KeyRange, Table, key_range
from .values import Item, stored_item

_PAGE_BYTES = 1 << 20
_READ_BYTES = 4096
_BATCH, _TRANSACTION = 25, 100
_EXPRESSIONS = ("ExpressionAttributeNames", "ExpressionAttributeValues")
_ITEM_WRITE = (
    "TableName",
    "ConditionExpression",
    *_EXPRESSIONS,
    "ReturnConsumedCapacity",
    "ReturnItemCollectionMetrics",
    "ReturnValues",
    "ReturnValuesOnConditionCheckFailure",
)
_READ = (
    "TableName",
    "ConsistentRead",
    "ProjectionExpression",
    "ExpressionAttributeNames",
    "ReturnConsumedCapacity",
)
_LIST = (
    *_READ,
    "ExpressionAttributeValues",
    "FilterExpression",
    "IndexName",
    "Limit",
    "ExclusiveStartKey",
    "Select",
)
_ACTION = {
    kind: frozenset((*_ITEM_WRITE, key, "UpdateExpression"))
    for kind, key in {"Put": "Item", "Update": "Key", "Delete": "Key", "ConditionCheck": "Key"}.items()
}
"""What a transaction's actions may have."""

Answer = dict[str, Any]
Method = Callable[..., Answer]


def operation(name: str, *allowed: str) -> Callable[[Callable[[Any, Mapping[str, Any]], Answer]], Method]:
    """A method of a client: which parameters it takes, and that it raises ClientError."""

    def decorate(method: Callable[[Any, Mapping[str, Any]], Answer]) -> Method:
        known = frozenset(allowed)

        @wraps(method)
        def call(self: Any, **request: Any) -> Answer:
            if not known.issuperset(request):
                raise unknown(f"{min(request.keys() - known)} of {name}")
            try:
                answer = method(self, request)
            except Refused as refusal:
                raise refusal.as_client_error(name) from None
            except KeyError as error:  # a request without what it must have
                raise invalid(f"{name} lacks {error}").as_client_error(name) from error
            answer["ResponseMetadata"] = {"HTTPStatusCode": 200, "RetryAttempts": 0}
            return answer

        return call

    return decorate


class Client:
    """boto3's DynamoDB client, as far as Headrace uses it. Raises ClientError, and NotImplementedError for a request
    that the engine does not know."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    # Items

    @operation("GetItem", *_READ, "Key")
    def get_item(self, request: Mapping[str, Any]) -> Answer:
        table = self.engine.table(request["TableName"])
        given = Given.of(request)
        projection = _projection(request, given)
        given.check_all_used()
        key, _ = stored_item(request["Key"])
        table.keys.check_only(key)
        with self.engine.reading() as connection:
            row = table.get(connection, table.keys.bytes_of(key))
        answer: Answer = {}
        if row is not None:
            answer["Item"] = projection.of(row.item) if projection else row.item
        units = _read_units(row.size if row else 0, request) or _read_units(1, request)
        return _with_capacity(answer, request, table, units)

    @operation("PutItem", *_ITEM_WRITE, "Item")
    def put_item(self, request: Mapping[str, Any]) -> Answer:
        return self._write("Put", request)

    @operation("UpdateItem", *_ITEM_WRITE, "Key", "UpdateExpression")
    def update_item(self, request: Mapping[str, Any]) -> Answer:
        return self._write("Update", request)

    @operation("DeleteItem", *_ITEM_WRITE, "Key")
    def delete_item(self, request: Mapping[str, Any]) -> Answer:
        return self._write("Delete", request)

    def _write(self, kind: str, request: Mapping[str, Any]) -> Answer:
        write = self.engine.prepared(kind, request)
        wanted = request.get("ReturnValues", "NONE")
        if wanted not in ("NONE", "ALL_OLD") and write.update is None:
            raise invalid("Return values set to invalid value")
        change = self.engine.write(write)
        answer: Answer = {}
        if attributes := _attributes(change, wanted):
            answer["Attributes"] = attributes
        units = change.table_units
        return _with_capacity(answer, request, write.table, units, _by_index([change]))

    @operation("BatchWriteItem", "RequestItems", "ReturnConsumedCapacity", "ReturnItemCollectionMetrics")
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
        changes = self.engine.write_batch(writes)
        return _with_capacities({"UnprocessedItems": {}}, request, changes, 1)

    @operation(
        "TransactWriteItems",
        "TransactItems",
        "ClientRequestToken",
        "ReturnConsumedCapacity",
        "ReturnItemCollectionMetrics",
    )
    def transact_write_items(self, request: Mapping[str, Any]) -> Answer:
        actions = [next(iter(each.items())) for each in request["TransactItems"]]
        if not 1 <= len(actions) <= _TRANSACTION:
            raise invalid("Member must have length less than or equal to 100, and at least 1")
        for kind, action in actions:
            if not _ACTION[kind].issuperset(action):
                raise unknown(f"{min(action.keys() - _ACTION[kind])} of a transaction's {kind}")
        writes = [self.engine.prepared(kind, action) for kind, action in actions]
        places = [(write.table.name, write.place) for write in writes if write.unfit is None]
        if len(set(places)) < len(places):
            raise invalid("Transaction request cannot include multiple operations on one item")
        changes = self.engine.transact(writes, request.get("ClientRequestToken"), request["TransactItems"])
        return _with_capacities({}, request, changes, 2)

    # Lists

    @operation("Query", *_LIST, "KeyConditionExpression", "ScanIndexForward")
    def query(self, request: Mapping[str, Any]) -> Answer:
        return self._list(request, request["KeyConditionExpression"])

    @operation("Scan", *_LIST)
    def scan(self, request: Mapping[str, Any]) -> Answer:
        return self._list(request, None)

    def _list(self, request: Mapping[str, Any], text: str | None) -> Answer:
        table = self.engine.table(request["TableName"])
        index = table.index(request["IndexName"]) if request.get("IndexName") else None
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
        projection = _projection(request, given)
        given.check_all_used()
        start = _start(request, table, index)
        limit = request.get("Limit")
        if limit is not None and limit < 1:
            raise invalid(
                "1 validation error detected: Value at 'limit' failed to satisfy constraint: at least 1"
            )
        page = self._page(table, index, of, start, limit, forward=request.get("ScanIndexForward", True))
        items = [item for item in page.items if filter_ is None or filter_.holds(item)]
        answer: Answer = {"Count": len(items), "ScannedCount": len(page.items)}
        if request.get("Select") != "COUNT":
            answer["Items"] = [projection.of(item) for item in items] if projection else items
        if page.last is not None:
            names = dict.fromkeys((*keys.names, *table.keys.names))
            answer["LastEvaluatedKey"] = {name: page.last[name] for name in names}
        units = _read_units(page.bytes, request)
        if index is None:
            return _with_capacity(answer, request, table, units)
        return _with_capacity(answer, request, table, 0, {index.name: units})

    def _page(
        self,
        table: Table,
        index: Index | None,
        of: KeyRange | None,
        start: Item | None,
        limit: int | None,
        *,
        forward: bool,
    ) -> _Page:
        page = _Page()
        with (
            self.engine.reading() as connection,
            closing(table.rows(connection, index, of, start, forward=forward)) as rows,
        ):
            for size, item in rows:
                page.items.append(item)
                page.bytes += size
                if len(page.items) == limit or page.bytes > _PAGE_BYTES:
                    keys = index.keys if index else table.keys
                    if of is None or not of.ends_with(keys.bytes_of(item)[1], forward=forward):
                        page.last = item
                    break
        return page

    # Tables

    @operation(
        "CreateTable",
        "TableName",
        "KeySchema",
        "AttributeDefinitions",
        "BillingMode",
        "GlobalSecondaryIndexes",
        "StreamSpecification",
    )
    def create_table(self, request: Mapping[str, Any]) -> Answer:
        return {"TableDescription": self._described(self.engine.create(dict(request)))}

    @operation("UpdateTable", "TableName", "StreamSpecification")
    def update_table(self, request: Mapping[str, Any]) -> Answer:
        stream = request["StreamSpecification"]
        before = self.engine.table(request["TableName"]).view
        if bool(stream["StreamEnabled"]) == bool(before):
            raise invalid(
                "Table already has an enabled stream" if before else "Table has no stream to disable"
            )
        table = self.engine.alter(request["TableName"], StreamSpecification=stream)
        return {"TableDescription": self._described(table)}

    @operation("DeleteTable", "TableName")
    def delete_table(self, request: Mapping[str, Any]) -> Answer:
        return {
            "TableDescription": {
                "TableName": self.engine.drop(request["TableName"]).name,
                "TableStatus": "DELETING",
            }
        }

    @operation("DescribeTable", "TableName")
    def describe_table(self, request: Mapping[str, Any]) -> Answer:
        return {"Table": self._described(self.engine.table(request["TableName"]))}

    @operation("ListTables", "ExclusiveStartTableName", "Limit")
    def list_tables(self, request: Mapping[str, Any]) -> Answer:
        after, most = request.get("ExclusiveStartTableName", ""), request.get("Limit", 100)
        names = [name for name in self.engine.tables if name > after]
        more = {"LastEvaluatedTableName": names[most - 1]} if len(names) > most else {}
        return {"TableNames": names[:most], **more}

    @operation("DescribeTimeToLive", "TableName")
    def describe_time_to_live(self, request: Mapping[str, Any]) -> Answer:
        attribute = self.engine.table(request["TableName"]).ttl
        if attribute is None:
            return {"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}}
        return {"TimeToLiveDescription": {"TimeToLiveStatus": "ENABLED", "AttributeName": attribute}}

    @operation("UpdateTimeToLive", "TableName", "TimeToLiveSpecification")
    def update_time_to_live(self, request: Mapping[str, Any]) -> Answer:
        specification = request["TimeToLiveSpecification"]
        if not specification["Enabled"]:
            raise unknown("tables whose TimeToLive is taken back")
        if self.engine.table(request["TableName"]).ttl is not None:
            raise invalid("TimeToLive is already enabled")
        self.engine.alter(request["TableName"], TimeToLive=specification["AttributeName"])
        return {"TimeToLiveSpecification": specification}

    def get_waiter(self, name: str) -> Waiter:
        """What waits for a table: it is there as soon as it was made."""
        if name != "table_exists":
            raise unknown(f"the waiter {name}")
        return Waiter(self)

    def _described(self, table: Table) -> Answer:
        definition = {name: value for name, value in table.definition.items() if name != "TimeToLive"}
        described = {**definition, "TableStatus": "ACTIVE", "TableArn": f"{ARN}{table.name}"}
        if table.indexes:
            described["GlobalSecondaryIndexes"] = [
                {**each, "IndexStatus": "ACTIVE"} for each in definition["GlobalSecondaryIndexes"]
            ]
        if feed := self.engine.feed_of(table):
            described |= {"LatestStreamArn": feed.arn, "LatestStreamLabel": feed.arn.rpartition("/")[2]}
        return described


class Waiter:
    """boto3's waiter for a table."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def wait(self, *, TableName: str, WaiterConfig: object = None) -> None:
        """Return if the table is there. Raises ClientError."""
        self._client.describe_table(TableName=TableName)


class Streams:
    """boto3's client of DynamoDB's streams: each has one shard, which never ends."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @operation("DescribeStream", "StreamArn", "Limit", "ExclusiveStartShardId")
    def describe_stream(self, request: Mapping[str, Any]) -> Answer:
        feed = self.engine.feed(request["StreamArn"])
        shards = [{"ShardId": feed.shard, "SequenceNumberRange": {"StartingSequenceNumber": f"{1:021d}"}}]
        description = {
            "StreamArn": feed.arn,
            "StreamStatus": "ENABLED",
            "StreamViewType": feed.table.view,
            "TableName": feed.table.name,
            "CreationRequestDateTime": datetime.now(UTC),
            "KeySchema": feed.table.definition["KeySchema"],
            "Shards": [] if request.get("ExclusiveStartShardId") else shards,
        }
        return {"StreamDescription": description}

    @operation("GetShardIterator", "StreamArn", "ShardId", "ShardIteratorType", "SequenceNumber")
    def get_shard_iterator(self, request: Mapping[str, Any]) -> Answer:
        feed = self.engine.feed(request["StreamArn"])
        number = start_of(feed, request["ShardIteratorType"], request.get("SequenceNumber"))
        return {"ShardIterator": f"{feed.arn}|{number}"}

    @operation("GetRecords", "ShardIterator", "Limit")
    def get_records(self, request: Mapping[str, Any]) -> Answer:
        arn, _, text = request["ShardIterator"].rpartition("|")
        number = int(text)
        records = self.engine.feed(arn).from_number(number, request.get("Limit", 1000))
        return {"Records": records, "NextShardIterator": f"{arn}|{number + len(records)}"}


class _Page:
    """What a list has read: its items, their size, and the last one where the list may go on."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.bytes = 0
        self.last: Item | None = None


def _projection(request: Mapping[str, Any], given: Given) -> Projection | None:
    text = request.get("ProjectionExpression")
    return Projection(text, given) if text is not None else None


def _start(request: Mapping[str, Any], table: Table, index: Index | None) -> Item | None:
    if not request.get("ExclusiveStartKey"):
        return None
    start, _ = stored_item(request["ExclusiveStartKey"])
    names = {*table.keys.names, *(index.keys.names if index else ())}
    if start.keys() != names:
        raise invalid("The provided starting key is invalid")
    return start


def _attributes(change: Change, wanted: str) -> Item | None:
    """What ReturnValues asks for."""
    old = change.old.item if change.old is not None else {}
    if wanted == "NONE":
        return None
    if wanted == "ALL_OLD":
        return old
    new = change.new or {}
    if wanted == "ALL_NEW":
        return new
    assert change.write.update is not None, "of an update"
    item = old if wanted == "UPDATED_OLD" else new
    return {name: item[name] for name in change.write.update.attributes if name in item}


def _read_units(size: int, request: Mapping[str, Any]) -> float:
    return -(-size // _READ_BYTES) * (1.0 if request.get("ConsistentRead") else 0.5)


def _by_index(changes: Iterable[Change]) -> dict[str, float]:
    units: dict[str, float] = {}
    for change in changes:
        for index in change.write.table.indexes:
            units[index.name] = units.get(index.name, 0) + change.index_units
    return units


def _with_capacities(answer: Answer, request: Mapping[str, Any], changes: list[Change], times: int) -> Answer:
    if request.get("ReturnConsumedCapacity", "NONE") == "NONE":
        return answer
    by_table: dict[str, list[Change]] = {}
    for change in changes:
        by_table.setdefault(change.write.table.name, []).append(change)
    answer["ConsumedCapacity"] = [
        _capacity(
            request["ReturnConsumedCapacity"],
            name,
            times * sum(change.table_units for change in of),
            {index: times * units for index, units in _by_index(of).items()},
        )
        for name, of in by_table.items()
    ]
    return answer


def _with_capacity(
    answer: Answer,
    request: Mapping[str, Any],
    table: Table,
    units: float,
    by_index: Mapping[str, float] | None = None,
) -> Answer:
    wanted = request.get("ReturnConsumedCapacity", "NONE")
    if wanted != "NONE":
        answer["ConsumedCapacity"] = _capacity(wanted, table.name, units, by_index or {})
    return answer


def _capacity(wanted: str, table: str, units: float, by_index: Mapping[str, float]) -> Answer:
    capacity: Answer = {"TableName": table, "CapacityUnits": float(units + sum(by_index.values()))}
    if wanted == "INDEXES":
        capacity["Table"] = {"CapacityUnits": float(units)}
        if by_index:
            capacity["GlobalSecondaryIndexes"] = {
                name: {"CapacityUnits": float(each)} for name, each in by_index.items()
            }
    return capacity
