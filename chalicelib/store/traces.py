"""Traces on DynamoDB (layout: table `traces`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..domain.limits import MAX_RECEIVE
from ..domain.segment import ShardKey
from ..domain.topic import CursorKey
from ..domain.trace import TraceEntry, TraceRow
from . import codec
from .attributes import Fields, Item, attributes, packed, payload_of, rows, text_of
from .dynamo import TableAccess
from .layout import FORMAT, trace_home

_FIELDS = Fields("group:g consumer:w", "total:n started_ms:a expires_s:x rank:r")


class Traces(TableAccess, table="traces"):
    """The attempts by message: one write unit for a small row, one query for all rows that may cover an offset."""

    def write(self, rows: Sequence[TraceRow]) -> None:
        """Store rows; one write unit for a small one."""
        self._dynamo.put(self._table, [_item(part) for row in rows for part in parts(row)])

    def rows_covering(self, key: CursorKey, offset: int, *, consistent: bool = False) -> list[TraceRow]:
        """The rows of a group (all its consumers) that hold an attempt at this offset, in order of time. A read that
        is not consistent may miss the newest. Here and below, rows that cannot be read are skipped."""
        first, last = _place(max(0, offset - MAX_RECEIVE + 1)), f"{_place(offset)}~"
        where = "k = :k AND o BETWEEN :first AND :last"
        request = rows(self._table, where, k=trace_home(key), first=first, last=last)
        items = self._dynamo.query(**request, ConsistentRead=consistent)
        return in_order(self._dynamo.readable(items, row_of), offset)

    def newest(self, key: CursorKey, rows_per_read: int) -> Iterator[TraceRow]:
        """The rows of a group (all its consumers) on one shard, those of the highest offsets first, read as they are
        needed. Not consistent: it may miss the newest."""
        request = rows(self._table, "k = :k", k=trace_home(key))
        items = self._dynamo.query(**request, ScanIndexForward=False, Limit=rows_per_read)
        return self._dynamo.readable(items, row_of)


def parts(row: TraceRow) -> Iterator[TraceRow]:
    """The row, or several where its offsets span more than one may."""
    part: list[TraceEntry] = []
    for attempt in row.entries:
        if part and attempt.offset - part[0].offset >= MAX_RECEIVE:
            yield replace(row, entries=tuple(part))
            part = []
        part.append(attempt)
    if part:
        yield replace(row, entries=tuple(part))


def in_order(rows: Iterator[TraceRow], offset: int) -> list[TraceRow]:
    """Those that hold an attempt at the offset, in order of time."""
    holding = (row for row in rows if any(attempt.offset == offset for attempt in row.entries))
    return sorted(holding, key=lambda row: row.started_ms)


def _place(first: int) -> str:
    return f"{first:016d}"


def _item(row: TraceRow) -> Item:
    sort_key, uid = f"{_place(row.entries[0].offset)}#{row.id}", row.key.consumer_uid or None
    return {
        **_FIELDS.packed(row),
        **attributes(k=trace_home(row.key), o=sort_key, t=row.key.shard.topic, u=uid),
        "m": packed(codec.pack_entries(row.entries)),
        "v": {"N": FORMAT},
    }


def row_of(item: Item) -> TraceRow:
    """The row of an item. Raises Unreadable."""
    return codec.decoded("traces", item, _row)


def _row(item: Item) -> TraceRow:
    group_uid, topic_uid, shard = item["k"]["S"].rsplit("/", 2)
    first, _, row_id = item["o"]["S"].partition("#")
    shard_key = ShardKey(item["t"]["S"], topic_uid, int(shard))
    key, entries = CursorKey(shard_key, group_uid, text_of(item, "u") or ""), payload_of(item) or ""
    others = {"rank": None, **_FIELDS.unpacked(item), "entries": codec.unpack_entries(entries, int(first))}
    return TraceRow(key, row_id, **others)
