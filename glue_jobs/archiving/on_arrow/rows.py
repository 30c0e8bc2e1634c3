"""From the lines of a shard to its rows: pure, table to table. The same as Spark's (on_spark/transforms.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from glue_jobs.archiving.engine import Unusual
from glue_jobs.archiving.on_arrow.hashes import checksum
from glue_jobs.archiving.on_arrow.lines import HEADERS, only_usual
from glue_jobs.common import schemas as tables
from glue_jobs.common.ranges import Ranges

_time = pa.timestamp("us", tz="UTC")
_text, _int, _long = pa.string(), pa.int32(), pa.int64()
MESSAGES = pa.schema(
    {
        "topic": _text,
        "topic_uid": _text,
        "shard": _int,
        "offset": _long,
        "id": _text,
        "accepted_at": _time,
        "tag": _text,
        "keys": pa.list_(_text),
        "ordering_key": _text,
        "headers": HEADERS,
        "content_type": _text,
        "body": pa.binary(),
    }
)
DELIVERIES = pa.schema(
    {
        "topic": _text,
        "topic_uid": _text,
        "group": _text,
        "group_uid": _text,
        "shard": _int,
        "offset": _long,
        "id": _text,
        "attempt": _int,
        "consumer": _text,
        "started_at": _time,
        "duration_ms": _long,
        "outcome": _text,
        "detail": _text,
    }
)
TABLES = {tables.MESSAGES: MESSAGES, tables.DELIVERIES: DELIVERIES}
"""The tables' columns as Arrow has them (common/schemas.py has them as Spark does)."""

PLACES = {
    tables.MESSAGES: ("topic", "topic_uid", "shard"),
    tables.DELIVERIES: ("topic", "group", "topic_uid", "shard"),
}
"""The columns that say where rows belong: a shard, or a group on it. In the order of the files."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Block:
    """Messages of a shard that follow one another: their rows, in order, the checksum of these, the offsets that are
    there, and how many of them have no row."""

    rows: pa.Table
    checksum: int
    ranges: Ranges
    voids: int


def place_of(table_name: str, key: Sequence[Any]) -> dict[str, Any]:
    """Where rows belong, as the spill's key has it."""
    return dict(zip(PLACES[table_name], key[:-1], strict=True))


Fetch = Callable[[Sequence[str]], Sequence[bytes]]
"""Gets large bodies by their names."""


def messages(lines: pa.Table, place: Mapping[str, Any], fetch: Fetch) -> Block:
    """Messages of a shard, whose `place` is its topic, topic_uid and shard: of each offset the last edition. Raises
    Unusual."""
    with only_usual():
        offsets, editions = _numbers(lines["offset"]), _numbers(lines["edition"])
        order = np.lexsort((-editions, offsets))
        first = _first_of(order, offsets)
        latest = lines.take(pa.array(first))
        is_row = latest["void"].is_null()
        bare = latest.filter(is_row).combine_chunks()
        keys = pc.coalesce(bare["keys"], pa.scalar([], pa.list_(_text)))
        times, body = _moments(bare["accepted_ms"]), _bodies(bare, fetch)
        rows = table(MESSAGES, bare, place, accepted_at=times, keys=keys, body=body)
        return Block(rows, checksum(rows), ranges_of(offsets[first]), latest.num_rows - rows.num_rows)


def _bodies(rows: pa.Table, fetch: Fetch) -> Any:
    is_elsewhere = rows["body_blob"].is_valid()
    names = rows["body_blob"].filter(is_elsewhere).to_pylist()
    if not names:
        return rows["body"]
    return pc.replace_with_mask(
        rows["body"].combine_chunks(), is_elsewhere.combine_chunks(), pa.array(fetch(names), pa.binary())
    )


def ranges_of(offsets: Numbers) -> Ranges:
    """Those of rising offsets."""
    ends = np.flatnonzero(np.diff(offsets) != 1)
    firsts = offsets[np.concatenate(([0], ends + 1))] if len(offsets) else offsets
    lasts = offsets[np.concatenate((ends, [len(offsets) - 1]))] if len(offsets) else offsets
    return tuple(zip(firsts.tolist(), lasts.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class Ids:
    """The ids of a shard's messages, by rising offset."""

    offsets: Numbers
    ids: pa.Array

    def of(self, offsets: Numbers) -> pa.Array:
        """The ids of messages, null where there is none."""
        if not len(self.offsets):
            return pa.nulls(len(offsets), _text)
        places = np.minimum(np.searchsorted(self.offsets, offsets), len(self.offsets) - 1)
        return self.ids.take(pa.array(places, mask=self.offsets[places] != offsets))


def ids(tables: Sequence[pa.Table]) -> Ids:
    """Those of tables with `offset` and `id`; of an offset that is in several, of the first."""
    if not tables:
        return Ids(np.zeros(0, np.int64), pa.nulls(0, _text))
    all_rows = pa.concat_tables(tables).combine_chunks()
    offsets = _numbers(all_rows["offset"])
    first = _first_of(np.argsort(offsets, kind="stable"), offsets)
    return Ids(offsets[first], all_rows["id"].combine_chunks().take(pa.array(first)))


def deliveries(lines: pa.Table, place: Mapping[str, Any], message_ids: Ids) -> pa.Table:
    """One row for each attempt of a group on a shard, in order (a redrive is none). Raises Unusual."""
    with only_usual():
        attempts = lines.filter(pc.not_equal(lines["outcome"], "REDRIVEN")).combine_chunks()
        offsets, started_ms = _numbers(attempts["offset"]), _numbers(attempts["started_ms"])
        numbers, consumers = _numbers(attempts["attempt"]), _ranks(attempts["consumer"])
        alike = [_ranks(attempts[name]) for name in ("group_uid", "consumer_uid", "trace")]
        order = np.lexsort((numbers, started_ms, *alike, offsets))
        first = _first_of(order, offsets, started_ms, *alike)
        sort = np.lexsort((consumers[first], numbers[first], started_ms[first], offsets[first]))
        rows = attempts.take(pa.array(first[sort])).combine_chunks()
        id_ = message_ids.of(offsets[first[sort]])
        return table(DELIVERIES, rows, place, started_at=_moments(rows["started_ms"]), id=id_)


def table(schema: pa.Schema, rows: pa.Table, place: Mapping[str, Any], **new_columns: Any) -> pa.Table:
    """A table of these columns: what its rows have in common is in `place`, what is made anew in
    `new_columns`."""
    columns = []
    for field in schema:
        if field.name in place:
            column = pa.repeat(pa.scalar(place[field.name], field.type), rows.num_rows)
        else:
            column = new_columns[field.name] if field.name in new_columns else rows[field.name]
        columns.append(column)
    return pa.table(columns, schema=schema)


def sorted_by(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Rows by the values of some columns; nothing comes first."""
    columns = [rows[name].cast(_long) if rows[name].type == _time else rows[name] for name in names]
    ranks = [_ranks(column) if column.type == _text else _numbers(column) for column in columns]
    return rows.take(pa.array(np.lexsort(ranks[::-1])))


def _first_of(order: Numbers, *keys: Numbers) -> Numbers:
    """Of rows in an order in which those with alike keys stand together, the first of each."""
    if not len(order):
        return order
    differs = np.zeros(len(order) - 1, np.bool_)
    for key in keys:
        sorted_key = key[order]
        differs |= sorted_key[1:] != sorted_key[:-1]
    return order[np.concatenate(([True], differs))]


def _numbers(column: Any) -> Numbers:
    """A number that is missing comes first, as it does in Spark."""
    least = pa.scalar(np.iinfo(np.int32 if column.type == _int else np.int64).min + 1, column.type)
    numbers: Numbers = pc.fill_null(column, least).to_numpy().astype(np.int64)
    return numbers


def _ranks(column: Any) -> Numbers:
    """Numbers that are sorted as the texts are; nothing comes first."""
    codes = column.combine_chunks().dictionary_encode()
    ranks = np.empty(len(codes.dictionary) + 1, np.int64)
    order = pc.sort_indices(codes.dictionary).to_numpy()
    ranks[order] = np.arange(len(order))
    ranks[-1] = -1
    numbers: Numbers = ranks[
        pc.fill_null(codes.indices, len(codes.dictionary)).to_numpy(zero_copy_only=False)
    ]
    return numbers


def _moments(milliseconds: Any) -> Any:
    extremes = pc.min_max(milliseconds).as_py()
    first, last = tables.TIMES_MS
    if extremes["min"] is not None and not first <= extremes["min"] <= extremes["max"] <= last:
        raise Unusual("A time is none.")
    return pc.multiply_checked(milliseconds, 1000).cast(_time)


def with_checksum(rows: pa.Table) -> tuple[pa.Table, int]:
    """Rows and their checksum."""
    return rows, checksum(rows)
