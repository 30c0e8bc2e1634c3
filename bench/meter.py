"""Counts what AWS would bill: request units and round trips of one botocore client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

_WRITES = ("PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems", "BatchWriteItem")
_READS = ("GetItem", "Query", "Scan", "BatchGetItem", "TransactGetItems")
_KIB = 1024


@dataclass
class Cost:
    """Request units, by table where that matters, and round trips."""

    writes: float = 0
    reads: float = 0
    trips: int = 0
    failed: int = 0
    reads_of: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.writes + other.writes,
            self.reads + other.reads,
            self.trips + other.trips,
            self.failed + other.failed,
            self.reads_of + other.reads_of,
        )

    def per(self, count: float) -> Cost:
        """The cost of one of `count`."""
        of = Counter({table: units / count for table, units in self.reads_of.items()})
        return Cost(self.writes / count, self.reads / count, self.trips, self.failed, of)

    @property
    def log_reads(self) -> float:
        return sum(units for table, units in self.reads_of.items() if table.endswith("-log"))


class Meter:
    """Hand `watch` to `adapters.dynamo_adapters(on_client=…)`; not for several threads at once."""

    def __init__(self) -> None:
        self.cost = Cost()
        self._actions: list[dict[str, Any]] = []

    def watch(self, client: Any) -> None:
        """Have each answer say what it cost, and add it up."""
        client.meta.events.register("before-parameter-build.dynamodb", self._ask)
        client.meta.events.register("before-send.dynamodb", self._count_trip)
        client.meta.events.register("after-call.dynamodb", self._count_units)

    @contextmanager
    def measure(self) -> Iterator[Cost]:
        """The cost of a block; complete when the block has ended."""
        before, self.cost = self.cost, Cost()
        try:
            yield self.cost
        finally:
            self.cost = before + self.cost

    def _ask(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        if model.name in _WRITES + _READS:
            params["ReturnConsumedCapacity"] = "TOTAL"
            self._actions = params.get("TransactItems", [])

    def _count_trip(self, **_: Any) -> None:
        self.cost.trips += 1

    def _count_units(self, parsed: dict[str, Any], model: Any, **_: Any) -> None:
        if "Error" in parsed:
            self._count_failure(parsed)
            return
        if model.name == "TransactWriteItems":
            self.cost.writes += sum(_transaction_units(action) for action in self._actions)
            return
        capacities = parsed.get("ConsumedCapacity") or []
        for part in capacities if isinstance(capacities, list) else [capacities]:
            units = part["CapacityUnits"]
            if model.name in _READS:
                units = max(units, 0.5)  # the local engine calls an empty query free; AWS does not
                self.cost.reads += units
                self.cost.reads_of[part["TableName"]] += units
            else:
                self.cost.writes += units

    def _count_failure(self, parsed: dict[str, Any]) -> None:
        """A failed condition costs 1 unit per started KiB of the item that stands there; no answer says so."""
        code = parsed["Error"]["Code"]
        if code == "ConditionalCheckFailedException":
            self.cost.failed += 1
            self.cost.writes += _units(parsed.get("Item"))
        elif code == "TransactionCanceledException":
            self.cost.failed += 1
            reasons = parsed.get("CancellationReasons", [])
            self.cost.writes += 2 * sum(_units(reason.get("Item")) for reason in reasons)


def _transaction_units(action: dict[str, Any]) -> int:
    """The units of a transaction's action: twice the item's units. The local engine reports one item of each table
    only; the former item of an update or deletion is assumed to be small."""
    item = action["Put"]["Item"] if "Put" in action else None
    return 2 * (_units(item) + _index_units(item or {}))


def _index_units(item: dict[str, Any]) -> int:
    """The one index there is lists transactions that a person has to decide, or that were rolled back."""
    return int({"t", "g", "o", "e"} <= item.keys())


def _units(item: dict[str, Any] | None) -> int:
    return max(1, -(-_size({"M": item or {}}) // _KIB))


def _size(value: dict[str, Any]) -> int:
    """Bytes of an attribute value as DynamoDB counts them; numbers approximately."""
    kind, inner = next(iter(value.items()))
    if kind == "M":
        return sum(len(name.encode()) + _size(v) + 1 for name, v in inner.items())
    if kind == "L":
        return sum(_size(v) + 1 for v in inner)
    if kind == "N":
        return (len(inner) + 1) // 2 + 1
    return len(inner.encode() if isinstance(inner, str) else inner) if kind in ("S", "B") else 1
