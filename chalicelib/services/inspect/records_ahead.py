"""Reads delivery records for a page of messages in few requests."""

from __future__ import annotations

from collections.abc import Mapping

from ...domain.record import Record
from ...domain.topic import CursorKey
from ...ports.records import Records

_NEAR = 4  # offsets that are no further from one another are of one page
_AHEAD = 64


class RecordsAhead:
    """Records, asked for message after message. If two neighbours of a shard are asked for, the next ones are read
    together: most messages have no record, and looking for one that does not exist costs a read as well. What was read
    last of a shard is not read again."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._asked: dict[CursorKey, int] = {}  # the offset that was asked for last
        self._read: dict[CursorKey, tuple[range, Mapping[int, Record]]] = {}

    def get(self, key: CursorKey, offset: int) -> Record | None:
        """The record of one delivery, read consistently after its cursor."""
        before, self._asked[key] = self._asked.get(key), offset
        offsets, records = self._read.get(key, (range(0), {}))
        if offset in offsets:
            return records.get(offset)
        if before is None or not 0 < before - offset <= _NEAR:
            record = self._records.get(key, offset)
            first, records = offset, {offset: record} if record else {}
        else:
            first = max(0, offset - _AHEAD + 1)
            records = self._records.between(key, first, offset)
        self._read[key] = range(first, offset + 1), records
        return records.get(offset)
