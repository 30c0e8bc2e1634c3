"""The hash of rows that manifests hold: that of Spark's `xxhash64`, for many rows at once.

XXH64 (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md). The hash of a column's value is the seed for the
next one; a null leaves it as it is. Numbers of 32 bits are hashed as 4 bytes, of 64 as 8; arrays by element, maps by
key and value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Hashes = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]

_1, _2, _3, _4, _5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_SEED = 42
_STRIPE = 32  # bytes that are hashed in four lanes
_AT_ONCE = 8_192  # rows: their words fit into a processor's cache


def checksum(rows: pa.Table) -> int:
    """The exclusive or of the hashes of all rows, as 64 bits without a sign. Each value is followed by whether it is
    null, so that two neighbours can't change places."""
    hashes = np.full(rows.num_rows, _SEED, np.uint64)
    for column in rows.columns:
        values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        hashes = _value(values, hashes)
        hashes = _int(_is_null(values).astype(np.uint64), hashes)
    return int(np.bitwise_xor.reduce(hashes)) if len(hashes) else 0


def _value(values: pa.Array, seeds: Hashes) -> Hashes:
    """The hashes of an array's values, each with its own seed."""
    kind, nulls = values.type, _is_null(values)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _elements(values, nulls, seeds)
    if pa.types.is_int32(kind):
        numbers = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
        hashes = _int(numbers.astype(np.uint32).astype(np.uint64), seeds)
    elif pa.types.is_int64(kind) or pa.types.is_timestamp(kind):
        numbers = pc.fill_null(values.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        hashes = _long(numbers.astype(np.int64).view(np.uint64), seeds)
    else:
        hashes = _text(values, seeds)
    return np.where(nulls, seeds, hashes) if nulls.any() else hashes


def _is_null(values: pa.Array) -> npt.NDArray[np.bool_]:
    if not values.null_count:
        return np.zeros(len(values), np.bool_)
    nulls: npt.NDArray[np.bool_] = values.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _elements(values: pa.Array, nulls: npt.NDArray[np.bool_], seeds: Hashes) -> Hashes:
    """The hashes of lists, element by element, and of maps, by key and value."""
    starts = values.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    counts = np.where(nulls, 0, starts[1:] - starts[:-1])
    is_map = pa.types.is_map(values.type)
    children = (values.keys, values.items) if is_map else (values.values,)
    hashes = seeds.copy()
    for number in range(int(counts.max(initial=0))):
        rows = np.flatnonzero(counts > number)
        places = pa.array(starts[:-1][rows] + number)
        for child in children:
            hashes[rows] = _value(child.take(places), hashes[rows])
    return hashes


def _text(values: pa.Array, seeds: Hashes) -> Hashes:
    """Those of texts or bytes."""
    if not len(values):
        return seeds
    _, offsets, content = values.buffers()
    width = (
        np.int64
        if pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
        else np.int32
    )
    ends = np.frombuffer(offsets, width)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    words = _words(content, int(ends[-1]))
    starts, lengths = ends[:-1], ends[1:] - ends[:-1]
    hashes = np.empty_like(seeds)
    order = np.argsort(-lengths, kind="stable")  # those of a length together: they end together
    for begin in range(0, len(order), _AT_ONCE):
        rows = order[begin : begin + _AT_ONCE]
        hashes[rows] = _xxh64(_Reader(words, starts[rows]), lengths[rows], seeds[rows])
    return hashes


def _words(content: Any, end: int) -> Hashes:
    """The bytes as words of 64 bits, with one more behind them."""
    copy = np.zeros((end + 15) // 8, np.uint64) if content is None or content.size < end + 16 else None
    if copy is None:
        return np.frombuffer(content, np.uint64, (end + 15) // 8)
    if content is not None:
        copy.view(np.uint8)[:end] = np.frombuffer(content, np.uint8, end)
    return copy


class _Reader:
    """Words of 64 bits behind where each row begins, which need not be where a word of memory begins."""

    def __init__(self, words: Hashes, starts: Integers) -> None:
        self._words, self._starts = words, starts
        self._cells, bits = starts >> 3, ((starts & 7) << 3).astype(np.uint64)
        self._right, self._left = bits, np.uint64(63) - bits

    def of(self, rows: Integers) -> _Reader:
        """The same for some rows."""
        return _Reader(self._words, self._starts[rows])

    def word(self, count: int, number: int | Integers) -> Hashes:
        """Of the first `count` rows that word, from 0 on."""
        cells = self._cells[:count] + number
        low = self._words.take(cells, mode="clip") >> self._right[:count]
        high = self._words.take(cells + 1, mode="clip") << np.uint64(1)
        high <<= self._left[:count]
        high |= low
        return high

    def words(self, count: int, number: int, how_many: int) -> list[Hashes]:
        """So many words in a row."""
        left_shifts, right_shifts = self._left[:count], self._right[:count]
        cells = self._cells[:count] + number
        matches, cell = [], self._words.take(cells, mode="clip")
        for _ in range(how_many):
            cells += 1
            cell >>= right_shifts
            next_cell = self._words.take(cells, mode="clip")
            high = next_cell << np.uint64(1)
            high <<= left_shifts
            high |= cell
            matches.append(high)
            cell = next_cell
        return matches


def _xxh64(reader: _Reader, lengths: Integers, seeds: Hashes) -> Hashes:
    """XXH64 of rows whose lengths fall from row to row."""
    hashes = seeds + _5
    longer = _count(lengths, _STRIPE)
    if longer:
        hashes[:longer] = _stripes(reader, lengths[:longer], seeds[:longer])
    hashes += lengths.astype(np.uint64)
    starts, rest = lengths & ~np.int64(_STRIPE - 1), lengths & np.int64(_STRIPE - 1)
    tail = _Tail(reader, starts, rest, hashes)
    return _avalanche(tail.hashes())


def _count(lengths: Integers, least: int) -> int:
    """How many of the falling lengths are at least so much."""
    return len(lengths) - int(np.searchsorted(lengths[::-1], least))


def _stripes(reader: _Reader, lengths: Integers, seeds: Hashes) -> Hashes:
    lanes = [seeds + _1 + _2, seeds + _2, seeds.copy(), seeds - _1]
    for at in range(0, int(lengths[0]) & ~(_STRIPE - 1), _STRIPE):
        count = _count(lengths, at + _STRIPE)
        for lane, word in zip(lanes, reader.words(count, at // 8, len(lanes)), strict=True):
            _add_round(lane[:count], word)
    hashes = (
        _rotate_left(lanes[0], 1)
        + _rotate_left(lanes[1], 7)
        + _rotate_left(lanes[2], 12)
        + _rotate_left(lanes[3], 18)
    )
    for lane in lanes:
        hashes = (hashes ^ _round(np.zeros_like(lane), lane)) * _1 + _4
    return hashes


class _Tail:
    """The bytes behind the last whole stripe: fewer than 32 in each row."""

    def __init__(self, reader: _Reader, starts: Integers, rest: Integers, hashes: Hashes) -> None:
        self._order = np.argsort(-rest, kind="stable")
        self._rest = rest[self._order]
        self._begins = starts[self._order]
        self._reader = reader.of(self._order)
        self._hashes = hashes[self._order]

    def hashes(self) -> Hashes:
        """In the order of the rows."""
        for number in range(3):
            self._add_word(8 * number, _count(self._rest, 8 * number + 8))
        lengths, starts = self._rest & 7, self._begins + (self._rest & ~np.int64(7))
        word = self._reader.word(len(starts), starts >> 3)  # all that is left of a row is in it
        four = lengths >= 4
        half = word & np.uint64(0xFFFFFFFF)
        self._hashes = np.where(four, _rotate_left(self._hashes ^ (half * _1), 23) * _2 + _3, self._hashes)
        word = np.where(four, word >> np.uint64(32), word)
        lengths = np.where(four, lengths - 4, lengths)
        for number in range(3):
            byte = (word >> np.uint64(8 * number)) & np.uint64(0xFF)
            self._hashes = np.where(
                lengths > number, _rotate_left(self._hashes ^ (byte * _5), 11) * _1, self._hashes
            )
        hashes = np.empty_like(self._hashes)
        hashes[self._order] = self._hashes
        return hashes

    def _add_word(self, at: int, count: int) -> None:
        if count:
            word = self._reader.word(count, (self._begins[:count] + at) >> 3)
            lane = _round(np.zeros(count, np.uint64), word)
            self._hashes[:count] = _rotate_left(self._hashes[:count] ^ lane, 27) * _1 + _4


def _int(numbers: Hashes, seeds: Hashes) -> Hashes:
    hashes = seeds + _5 + np.uint64(4)
    return _avalanche(_rotate_left(hashes ^ (numbers * _1), 23) * _2 + _3)


def _long(numbers: Hashes, seeds: Hashes) -> Hashes:
    hashes = seeds + _5 + np.uint64(8)
    return _avalanche(_rotate_left(hashes ^ _round(np.zeros_like(numbers), numbers), 27) * _1 + _4)


def _round(lane: Hashes, word: Hashes) -> Hashes:
    return _rotate_left(lane + word * _2, 31) * _1


def _add_round(lane: Hashes, word: Hashes) -> None:
    """The same in place, for what is done most often; `word` is used up."""
    word *= _2
    lane += word
    np.right_shift(lane, np.uint64(33), out=word)
    lane <<= np.uint64(31)
    lane |= word
    lane *= _1


def _rotate_left(hashes: Hashes, bits: int) -> Hashes:
    return (hashes << np.uint64(bits)) | (hashes >> np.uint64(64 - bits))


def _avalanche(hashes: Hashes) -> Hashes:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _3
    return hashes ^ (hashes >> np.uint64(32))


def combined_checksum(checksums: Sequence[int]) -> int:
    """That of all rows together."""
    total = 0
    for each in checksums:
        total ^= each
    return total
