"""Reads delivery records for a page of messages in few requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ...domain.record import Record
from ...domain.topic import CursorKey

if TYPE_CHECKING:
    from ...store.records import Records


_NEAR = 4  # offsets that are no further from one another are of one page
_AHEAD = 64


class RecordsAhead:
    """Records, asked for message after message. If two neighbours of a shard are asked for, the next ones are read
    together, in a broadcast for all consumers: most messages have no record, and looking for one that does not exist
    costs a read as well. What was read last of a shard is not read again."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._last: dict[CursorKey, tuple[int, Record | None]] = {}
        """The offset that was asked for last, and its record."""
        self._ahead: dict[CursorKey, tuple[range, Mapping[tuple[str, int], Record]]] = {}
        """By shard: the offsets that were read together, and the records among them by consumer and offset."""

    def get(self, key: CursorKey, offset: int) -> Record | None:
        """The record of one delivery, read consistently after its cursor."""
        before, record = self._last.get(key, (None, None))
        if before != offset:
            record = self._read(key, offset, is_page=before is not None and 0 < before - offset <= _NEAR)
            self._last[key] = offset, record
        return record

    def _read(self, key: CursorKey, offset: int, *, is_page: bool) -> Record | None:
        shard = replace(key, consumer_uid="")
        offsets, records = self._ahead.get(shard, (range(0), {}))
        if offset not in offsets:
            if not is_page:
                return self._records.get(key, offset)
            offsets = range(max(0, offset - _AHEAD + 1), offset + 1)
            read_records = self._records.between(key.group_uid, key.shard, offsets[0], offset)
            records = {(each.consumer_uid, each.offset): each for each in read_records}
            self._ahead[shard] = offsets, records
        return records.get((key.consumer_uid, offset))
