"""The cost of reads, which DynamoDB returns with each answer if asked to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..ports.world import ReadUnits

_READS = ("get_item", "query")
_EMPTY_UNITS = 0.5  # DynamoDB Local calls an empty query free; AWS does not
_counted: ContextVar[ReadUnits | None] = ContextVar("read_units", default=None)


@contextmanager
def count_read_units() -> Iterator[ReadUnits]:
    """Counts the read units of this thread's requests inside the block."""
    units = ReadUnits()
    token = _counted.set(units)
    try:
        yield units
    finally:
        _counted.reset(token)


def ask(operation: str, request: dict[str, Any]) -> ReadUnits | None:
    """Have the answer to a request say what it costs, if that is counted now; for `add`."""
    units = _counted.get() if operation in _READS else None
    if units is not None:
        request["ReturnConsumedCapacity"] = "TOTAL"
    return units


def add(units: ReadUnits, answer: Mapping[str, Any]) -> None:
    """Count what an answer says."""
    units.number += max(_EMPTY_UNITS, float(answer.get("ConsumedCapacity", {}).get("CapacityUnits", 0)))
