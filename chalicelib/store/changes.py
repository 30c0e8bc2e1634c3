"""What the streams of the tables `log` and `traces` carry."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from ..domain.trace import TraceRow
from ..ports import Written
from .layout import META_OFFSET, Item, int_of, shard_of
from .log import segment_of
from .traces import row_of

Records = Iterable[Mapping[str, Any]]
"""Stream records as Lambda gets them: JSON, with binary values in base64."""


def written(records: Records) -> list[Written | TraceRow]:
    """The rows that writes left, in order. What was removed, and a shard's memory, is left out."""
    rows: list[Written | TraceRow] = []
    for record in records:
        image = record["dynamodb"].get("NewImage")
        if record["eventName"] == "REMOVE" or not image:
            continue
        item = _item(image)
        if "k" in item:
            rows.append(row_of(item))
        elif int_of(item, "o") != META_OFFSET:
            rows.append(Written(shard_of(item["s"]["S"]), segment_of(item)))
    return rows


def batch_name(records: Records) -> str:
    """A name that only this batch of one stream has, however often it comes: its first and last number."""
    numbers = [record["dynamodb"]["SequenceNumber"] for record in records]
    stream = next(record["eventSourceARN"].rpartition("/")[2] for record in records)
    born = "".join(char for char in stream if char.isdigit())  # a table made anew counts from 1 again
    return f"{born}-{numbers[0]}-{numbers[-1]}"


def _item(image: Mapping[str, Any]) -> Item:
    return {
        name: {"B": base64.b64decode(value["B"])} if "B" in value else value for name, value in image.items()
    }
