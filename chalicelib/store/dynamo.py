"""The DynamoDB client: each request goes through here. Its failures as our errors, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from ..domain.errors import HeadraceError, Unreadable, unavailable
from ..domain.times import GoOn, always
from ..domain.transaction import Counted
from ..ports.world import Units
from .attributes import Item
from .layout import Tables

Action = dict[str, Any]  # of a transaction
_TRIES = 8
_BATCH = 25  # rows that a batch takes
S = TypeVar("S")
T = TypeVar("T")


class Dynamo:
    """A DynamoDB client and the stage's table names. Raises our errors (domain/errors), ConditionFailed or
    Cancelled."""

    def __init__(
        self,
        client: Any,
        tables: Tables,
        pause: Callable[[int], None],
        token: Callable[[], str],
        on_skip: Callable[[Unreadable], object] = lambda error: None,
    ) -> None:
        """`pause(n)` waits a little before the n-th repetition, after a conflict or of what a batch left undone;
        `token()` names a transaction, so that all its repetitions are one. `on_skip` is called for each unreadable row
        that a list skips."""
        self.client = client
        self.tables = tables
        self._pause = pause
        self._token = token
        self._on_skip = on_skip

    def call(self, operation: str, **request: Any) -> dict[str, Any]:
        """One request. Conflicts with another transaction are repeated here: botocore does not.

        An attempt whose answer was lost may have won and the SDK's next one met a conflict: then a refusal of our
        repetition may be of our own success.
        """
        if operation == "transact_write_items":
            request["ClientRequestToken"] = self._token()
        units = _counted.get()
        if units is not None:
            request["ReturnConsumedCapacity"] = "TOTAL"
        attempt = 0
        is_resent = False
        while True:
            attempt += 1
            try:
                answer: dict[str, Any] = getattr(self.client, operation)(**request)
                if units is not None:
                    add(units, answer, operation)
                return answer
            except ClientError as error:
                if is_conflict(error) and attempt < _TRIES:
                    is_resent = is_resent or was_resent(error)
                    self._pause(attempt)
                    continue
                refusal = translate(error, is_resent)
                if units is not None:
                    units.writes += getattr(refusal, "units", 0)
                raise refusal from error
            except BotoCoreError as error:
                raise translate(error) from error

    def get(self, table: str, key: Item, *, consistent: bool = True) -> Item | None:
        """The row with this key; None if there is none."""
        return self.call("get_item", TableName=table, Key=key, ConsistentRead=consistent).get("Item")

    def write_if(self, operation: str, **request: Any) -> bool:
        """Write on the request's conditions. False: they are not met."""
        try:
            self.call(operation, **request)
        except (ConditionFailed, Cancelled):
            return False
        return True

    def transact(self, actions: Sequence[dict[str, Any]]) -> bool:
        """Carry out all actions, or none. False: a condition of one is not met."""
        return self.write_if("transact_write_items", TransactItems=actions)

    def replace(self, table: str, item: Item, condition: dict[str, Any]) -> bool:
        """Put a row in the place of the one that meets the condition. False: none does. Raises Unavailable where an
        answer was lost and no row is there now: it may have been put, and taken away since."""
        try:
            request = {**condition, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
            self.call("put_item", TableName=table, Item=item, **request)
        except ConditionFailed as error:
            if error.retried and not error.item:
                raise unavailable() from error
            return error.retried and error.item == item  # our own success, whose answer was lost
        return True

    def query(self, **request: Any) -> Iterator[Item]:
        """The rows of a query, reading page after page as they are needed."""
        return self.pages("query", request)

    def pages(self, operation: str, request: dict[str, Any]) -> Iterator[Item]:
        """The rows of a query or a scan."""
        while True:
            answer = self.call(operation, **request)
            yield from answer["Items"]
            if "LastEvaluatedKey" not in answer:
                return
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def readable(self, items: Iterable[S], decode: Callable[[S], T]) -> Iterator[T]:
        """What `decode` makes of the rows of a list; those for which it raises Unreadable are skipped."""
        for item in items:
            try:
                entity = decode(item)
            except Unreadable as error:
                self._on_skip(error)
                continue
            yield entity

    def page(self, **request: Any) -> list[Item]:
        """The rows of a query's first page."""
        items: list[Item] = self.call("query", **request)["Items"]
        return items

    def count(self, most: int | None = None, may_go_on: GoOn = always, **request: Any) -> Counted:
        """The number of rows of a query, reading only the pages with the first `most` of them, as long as
        `may_go_on()`."""
        number = 0
        while True:
            answer = self.call("query", Select="COUNT", **request)
            number += int(answer["Count"])
            if "LastEvaluatedKey" not in answer:
                return Counted(number)
            if (most is not None and number >= most) or not may_go_on():
                return Counted(number, whole=False)
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def put(self, table: str, items: Sequence[Item]) -> None:
        """Put rows of different keys, without a condition."""
        if len(items) == 1:
            self.call("put_item", TableName=table, Item=items[0])
        else:
            self._batch(table, [{"PutRequest": {"Item": item}} for item in items])

    def delete(self, table: str, keys: Sequence[Item]) -> None:
        """Delete rows of different keys, without a condition."""
        if len(keys) == 1:
            self.call("delete_item", TableName=table, Key=keys[0])
        else:
            self._batch(table, [{"DeleteRequest": {"Key": key}} for key in keys])

    def _batch(self, table: str, requests: Sequence[dict[str, Any]]) -> None:
        for start in range(0, len(requests), _BATCH):
            unwritten_requests = {table: requests[start : start + _BATCH]}
            for attempt in range(1, _TRIES + 1):
                answer = self.call("batch_write_item", RequestItems=unwritten_requests)
                unwritten_requests = answer.get("UnprocessedItems") or {}
                if not unwritten_requests:
                    break
                self._pause(attempt)
            else:
                raise unavailable()


def write_of(
    table: str,
    *,
    key: Item | None = None,
    item: Item | None = None,
    update: str | None = None,
    condition: str | None = None,
    known: Item | None = None,
    shows_old: bool = False,
) -> dict[str, Any]:
    """The request, or the part of a transaction, that writes a row; `known` are the values of its expressions.
    `shows_old`: where its condition is not met, the answer has the row that is there."""
    parts = {"Key": key, "Item": item, "UpdateExpression": update, "ConditionExpression": condition}
    parts |= {"ExpressionAttributeValues": known or None}
    parts |= {"ReturnValuesOnConditionCheckFailure": "ALL_OLD" if shows_old else None}
    return {"TableName": table, **{name: part for name, part in parts.items() if part is not None}}


class TableAccess:
    """The rows of one table of the stage: the base of what the store offers of it."""

    _name: str

    def __init_subclass__(cls, table: str = "") -> None:
        """`table`: its name, without the stage."""
        if table:
            cls._name = table

    def __init__(self, dynamo: Dynamo) -> None:
        self._dynamo = dynamo
        self._tables = dynamo.tables
        self._table: str = getattr(dynamo.tables, self._name)


_EMPTY_UNITS = 0.5  # DynamoDB Local calls an empty query free; AWS does not
_counted: ContextVar[Units | None] = ContextVar("units", default=None)


@contextmanager
def count_units() -> Iterator[Units]:
    """Counts the units of this thread's requests inside the block."""
    units = Units()
    token = _counted.set(units)
    try:
        yield units
    finally:
        _counted.reset(token)


def add(units: Units, answer: Mapping[str, Any], operation: str) -> None:
    """Count what an answer says: of a batch and a transaction for each table."""
    said = answer.get("ConsumedCapacity", {})
    number = sum(float(part.get("CapacityUnits", 0)) for part in (said if isinstance(said, list) else [said]))
    if operation in ("get_item", "query"):
        units.reads += max(_EMPTY_UNITS, number)
    else:
        units.writes += number


CONFLICTS = {"TransactionConflictException", "TransactionInProgressException"}
_TRANSIENT = {
    "InternalServerError",
    "InternalFailure",
    "ServiceUnavailable",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
    "LimitExceededException",
    "RequestTimeout",
    "SlowDown",  # S3's
    "InternalError",  # likewise
    *CONFLICTS,
}


class ConditionFailed(Exception):
    """A conditional write found its condition not met; `item` is the stored row (None: there is none).

    `retried` says that the request was sent more than once: the refusal may be of our own success. It costs a unit for
    each KiB of the stored row; one, as far as is counted here.
    """

    units = 1

    def __init__(self, item: dict[str, Any] | None, retried: bool) -> None:
        super().__init__("condition failed")
        self.item = item
        self.retried = retried


class Cancelled(Exception):
    """A transaction was cancelled; per action the item that stood in its way (None: not this action).

    `retried` says that it was sent more than once, and not only by the SDK, whose repetitions bear one token and
    so are never refused because of our own success.
    """

    def __init__(self, items: list[dict[str, Any] | None], retried: bool) -> None:
        super().__init__("transaction cancelled")
        self.items = items
        self.retried = retried
        self.units = 2 * len(items)


def code_of(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def was_resent(error: ClientError) -> bool:
    """Did the SDK send the request more than once?"""
    return int(error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0)) > 0


def translate(
    error: ClientError | BotoCoreError, is_resent: bool = False
) -> HeadraceError | ConditionFailed | Cancelled | Exception:
    """The error to raise in place of one of botocore's; unexpected ones stay as they are.

    `is_resent`: the same request was made before, and the SDK sent it more than once.
    """
    if isinstance(error, BotoCoreError):
        return unavailable()
    response: dict[str, Any] = dict(error.response)
    code = code_of(error)
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(response.get("Item"), is_resent or was_resent(error))
    if code == "TransactionCanceledException":
        return _cancellation(error, is_resent)
    status: int = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    is_server_error = status >= 500  # a load balancer before AWS answers with a page, and none of AWS's codes
    return unavailable() if is_server_error or code in _TRANSIENT else error


def _cancellation(error: ClientError, is_resent: bool) -> Exception:
    reasons: list[dict[str, Any]] = [dict(r) for r in error.response.get("CancellationReasons", [])]
    codes = {r.get("Code") for r in reasons}
    if "TransactionConflict" in codes or "ConditionalCheckFailed" not in codes:
        return unavailable()
    items = [r.get("Item", {}) if r.get("Code") == "ConditionalCheckFailed" else None for r in reasons]
    return Cancelled(items, is_resent)


def is_conflict(error: ClientError) -> bool:
    """Was it refused because of another transaction? Then nothing was written, and the request can be repeated."""
    if code_of(error) in CONFLICTS:
        return True
    reasons = error.response.get("CancellationReasons", [])
    return any(r.get("Code") == "TransactionConflict" for r in reasons)
