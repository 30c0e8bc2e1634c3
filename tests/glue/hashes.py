"""The checksum of rows that a test makes by hand, as Spark's `xxhash64` computes it (glue_jobs/common/checksums.py).

XXH64: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md. Spark would take a second for each small file.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import xor
from typing import Any

from pyspark.sql.types import DataType, IntegerType

from glue_jobs.common.checksums import mark_of
from glue_jobs.common.schemas import TABLES

_1, _2, _3, _4, _5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_MASK = 2**64 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def checksum(table: str, rows: Iterable[dict[str, Any]]) -> int:
    """The exclusive or of the rows' hashes."""
    return reduce(xor, (_row(table, row) for row in rows), 0)


def _row(table: str, row: dict[str, Any]) -> int:
    seed = 42
    for field in TABLES[table]:
        value = row[field.name]
        seed = _value(field.dataType, value, seed)
        if value is not None:
            seed = _xxh64(mark_of(field.name).to_bytes(4, "little"), seed)
    return seed


def _value(kind: DataType, value: Any, seed: int) -> int:
    if value is None:
        return seed
    if isinstance(value, dict):
        value = [part for item in value.items() for part in item]
    if isinstance(value, list):
        return reduce(lambda before, part: _value(kind, part, before), value, seed)
    if isinstance(value, datetime):
        value = (value - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, int):
        size = 4 if isinstance(kind, IntegerType) else 8
        return _xxh64(value.to_bytes(size, "little", signed=True), seed)
    return _xxh64(value.encode() if isinstance(value, str) else value, seed)


def _xxh64(data: bytes, seed: int) -> int:
    words = [int.from_bytes(data[n : n + 8], "little") for n in range(0, len(data) // 8 * 8, 8)]
    stripes = len(data) // 32 * 4
    if stripes:
        lanes = [seed + _1 + _2, seed + _2, seed, seed - _1]
        for number, word in enumerate(words[:stripes]):
            lanes[number % 4] = _round(lanes[number % 4], word)
        total = sum(_left(lane & _MASK, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            total = ((total ^ _round(0, lane)) * _1 + _4) & _MASK
    else:
        total = seed + _5
    total = (total + len(data)) & _MASK
    for word in words[stripes:]:
        total = (_left(total ^ _round(0, word), 27) * _1 + _4) & _MASK
    rest = data[len(data) // 8 * 8 :]
    if len(rest) >= 4:
        half = int.from_bytes(rest[:4], "little")
        total = (_left(total ^ (half * _1 & _MASK), 23) * _2 + _3) & _MASK
        rest = rest[4:]
    for byte in rest:
        total = _left(total ^ (byte * _5 & _MASK), 11) * _1 & _MASK
    total = (total ^ total >> 33) * _2 & _MASK
    total = (total ^ total >> 29) * _3 & _MASK
    return total ^ total >> 32


def _round(lane: int, word: int) -> int:
    return _left((lane + word * _2) & _MASK, 31) * _1 & _MASK


def _left(number: int, bits: int) -> int:
    return (number << bits | number >> (64 - bits)) & _MASK
