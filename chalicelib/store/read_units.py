"""The cost of reads, which DynamoDB returns with each answer if asked to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..ports.world import ReadUnits

_READS = ("GetItem", "Query")
_EMPTY_UNITS = 0.5  # the local engine calls an empty query free; AWS does not
_counted: ContextVar[ReadUnits | None] = ContextVar("read_units", default=None)


def watch(client: Any) -> None:
    """Count the read units of each answer of this client, while a ReadUnits is being counted."""
    client.meta.events.register("before-parameter-build.dynamodb", _ask)
    client.meta.events.register("after-call.dynamodb", _add)


@contextmanager
def count_read_units() -> Iterator[ReadUnits]:
    """Counts the read units of this thread's requests inside the block."""
    units = ReadUnits()
    token = _counted.set(units)
    try:
        yield units
    finally:
        _counted.reset(token)


def _ask(params: dict[str, Any], model: Any, **_: Any) -> None:
    if _counted.get() is not None and model.name in _READS:
        params["ReturnConsumedCapacity"] = "TOTAL"


def _add(parsed: dict[str, Any], model: Any, **_: Any) -> None:
    units = _counted.get()
    if units is not None and model.name in _READS and "Error" not in parsed:
        capacity = parsed.get("ConsumedCapacity") or {}
        units.number += max(_EMPTY_UNITS, float(capacity.get("CapacityUnits", 0)))
