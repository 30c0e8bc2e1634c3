"""Reads the records of the streams of the tables `log` and `traces`."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Any

from ..domain.errors import Unreadable
from ..domain.segment import UnreadableRecord, Written
from ..domain.times import LAST_SECOND
from ..domain.trace import TraceRow
from . import codec
from .attributes import Item, int_of
from .layout import META_OFFSET, shard_of
from .log import segment_of
from .traces import row_of

# Stream records as Lambda gets them: JSON, with binary values in base64.
Records = Iterable[Mapping[str, Any]]


def written_rows(records: Records) -> list[Written | TraceRow | UnreadableRecord]:
    """The rows that a stream's records show as written, in order, without removals and without a shard's meta row. A
    row that cannot be read is an UnreadableRecord; if only its messages cannot be read, it comes in both forms."""
    rows: list[Written | TraceRow | UnreadableRecord] = []
    for record in records:
        image = record["dynamodb"].get("NewImage")
        if record["eventName"] == "REMOVE" or not image:
            continue
        item = _item(image)
        try:
            row = codec.decoded("traces" if "k" in item else "log", item, _row)
        except Unreadable:
            rows.append(UnreadableRecord(record))
            continue
        if isinstance(row, Written) and row.segment.is_undecodable:
            rows.append(UnreadableRecord(record))
        if row:
            rows.append(row)
    return rows


def _row(item: Item) -> Written | TraceRow | None:
    """A row of either table; None for a shard's memory."""
    if "k" in item:
        trace = row_of(item)
        _check_time(trace.started_ms)
        return trace
    if int_of(item, "o") == META_OFFSET:
        return None
    segment = segment_of(item)
    _check_time(segment.accepted_ms)
    return Written(shard_of(item["s"]["S"]), segment)


def _check_time(at_ms: int) -> None:
    """Its day and hour say where a line is written."""
    if not 0 <= at_ms <= LAST_SECOND * 1000:
        raise ValueError(f"its time is {at_ms} ms")


def batch_name(records: Records) -> str:
    """A name that only this batch of one stream has, however often it comes: its first and last number."""
    numbers = [record["dynamodb"]["SequenceNumber"] for record in records]
    stream = next(record["eventSourceARN"].rpartition("/")[2] for record in records)
    # a table created again counts from 1
    stream_digits = "".join(char for char in stream if char.isdigit())
    return f"{stream_digits}-{numbers[0]}-{numbers[-1]}"


def _item(image: Mapping[str, Any]) -> Item:
    return {name: {"B": b64decode(value["B"])} if "B" in value else value for name, value in image.items()}
