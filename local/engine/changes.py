"""The streams of tables: their latest changes, in memory. Who reads them asks as of DynamoDB's streams."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from .errors import Refused
from .tables import Table
from .values import Item

_MOST_BYTES = 64 << 20  # kept for readers that are behind; the archive fills what they miss
_decode: Any = msgspec.msgpack.Decoder(dict[str, Any]).decode
_EXPIRY = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
VIEW = "NEW_IMAGE"


@dataclass(frozen=True, slots=True)
class _Change:
    number: int
    at_ms: int
    old: bytes | None
    new: bytes | None
    is_expiry: bool

    @property
    def bytes(self) -> int:
        return len(self.old or b"") + len(self.new or b"")


class Feed:
    """One table's stream. The changes of a key are in the order in which they were stored."""

    def __init__(self, table: Table, arn: str) -> None:
        self.table = table
        self.arn = arn
        # The number of the latest change; 0: there was none.
        self.last = 0
        # The number of the oldest change that is kept, or that will come.
        self.first = 1
        self._changes: dict[int, _Change] = {}
        self._bytes = 0

    @property
    def shard(self) -> str:
        """The id of its one shard."""
        return f"shardId-{0:020d}-{self.arn.rpartition('/')[2]}"

    def add(self, at_ms: int, old: bytes | None, new: bytes | None, *, is_expiry: bool) -> None:
        """A row was stored in the place of another; both as the table stores them."""
        change = _Change(self.last + 1, at_ms, old, new, is_expiry)
        self._changes[change.number] = change
        self._bytes += change.bytes
        while self._bytes > _MOST_BYTES and self.first < change.number:
            self._bytes -= self._changes.pop(self.first).bytes
            self.first += 1
        self.last = change.number

    def from_number(self, number: int, most: int) -> list[dict[str, Any]]:
        """Up to `most` records from a number on. Raises Refused where that one is not kept any more."""
        numbers = range(number, min(self.last + 1, number + most))
        try:
            return [self._record(self._changes[each]) for each in numbers]
        except KeyError:
            raise Refused("TrimmedDataAccessException", "The record is not kept any more") from None

    def _record(self, change: _Change) -> dict[str, Any]:
        new, old = (_decode(data) if data is not None else None for data in (change.new, change.old))
        image: Item = new or old or {}
        content = {
            "ApproximateCreationDateTime": datetime.fromtimestamp(change.at_ms // 1000, UTC),
            "Keys": {name: image[name] for name in self.table.keys.names},
            "SequenceNumber": f"{change.number:021d}",
            "SizeBytes": change.bytes,
            "StreamViewType": VIEW,
            **({"NewImage": new} if new is not None else {}),
        }
        record = {
            "eventID": f"{change.number:032x}",
            "eventName": "REMOVE" if new is None else "INSERT" if old is None else "MODIFY",
            "eventVersion": "1.1",
            "eventSource": "aws:dynamodb",
            "awsRegion": "us-east-1",
            "dynamodb": content,
        }
        return {**record, "userIdentity": _EXPIRY} if change.is_expiry else record
