"""Lines partitioned by where they belong: in memory, and what is more spilled to the disk."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather

from glue_jobs.archiving.engine import Unusual
from glue_jobs.archiving.on_arrow.lines import only_usual

MEMORY_BYTES = 128_000_000
"""Of lines in memory, beyond which all that are there go to the disk."""
BLOCK = 8_192
"""Offsets that are worked on together, so that memory does not grow with a shard."""
_BLOCK_BYTES = 256_000_000  # of their lines; a processor's memory holds it some times

Key = tuple[Any, ...]
"""The place of lines (rows.py), and after it the block of offsets."""


class Spill:
    """Lines by where they belong. What memory does not hold is spilled to files in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tables: defaultdict[Key, list[pa.Table]] = defaultdict(list)
        self._files: defaultdict[Key, list[Path]] = defaultdict(list)
        self._bytes = self._number = 0
        self._sizes: Counter[Key] = Counter()
        self.counts: Counter[Key] = Counter()

    def put(self, parts: Sequence[tuple[Key, pa.Table]]) -> None:
        """Add what `partition` returned."""
        for key, part in parts:
            self._tables[key].append(part)
            self._bytes += part.nbytes
            self._sizes[key] += part.nbytes
            self.counts[key] += part.num_rows
        if self._bytes > MEMORY_BYTES:
            self._spill()

    @only_usual()
    def read(self, key: Key) -> pa.Table:
        """What was put under a key. Raises Unusual."""
        tables = [*map(pa.feather.read_table, self._files.get(key, ())), *self._tables.get(key, ())]
        return pa.concat_tables(tables)

    @only_usual()
    def take(self, key: Key) -> pa.Table:
        """The same, once. Raises Unusual, also where it is too much for memory."""
        if self._sizes[key] > _BLOCK_BYTES:
            raise Unusual(f"Bodies are large: {self._sizes[key]:,} bytes lie together.")
        lines = self.read(key).combine_chunks()
        self._tables.pop(key, None)
        for file in self._files.pop(key, ()):
            file.unlink()
        return lines

    def _spill(self) -> None:
        self._folder.mkdir(exist_ok=True)
        for key, tables in self._tables.items():
            file = self._folder / f"{self._number}.arrow"
            pa.feather.write_feather(pa.concat_tables(tables), str(file), compression="uncompressed")
            self._files[key].append(file)
            self._number += 1
        self._tables.clear()
        self._bytes = 0


@only_usual()
def partition(lines: pa.Table, place: Sequence[str]) -> list[tuple[Key, pa.Table]]:
    """The lines by the columns that say where they belong, and by the block of their offsets; without these columns.
    Raises Unusual."""
    if not lines.num_rows:
        return []
    rest = lines.drop_columns([*place])
    lines = lines.append_column("block", pc.divide(lines["offset"], BLOCK))
    columns = (*place, "block")
    codes, values = _codes(lines, columns)
    distinct = np.unique(codes)
    if len(distinct) == 1:
        return [(values(0), rest)]
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], distinct, side="right")
    sorted_rows = rest.take(pa.array(order))
    starts = [0, *ends[:-1]]
    return [
        (values(int(order[begin])), sorted_rows.slice(begin, end - begin))
        for begin, end in zip(starts, ends, strict=True)
    ]


def _codes(lines: pa.Table, columns: Sequence[str]) -> tuple[Any, Any]:
    """A number for each line, alike where all columns are; and the key of a line."""
    codes = np.zeros(lines.num_rows, np.int64)
    for name in columns:
        column = lines[name].combine_chunks().dictionary_encode()
        numbers = pc.fill_null(column.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
        _, codes = np.unique(codes * (len(column.dictionary) + 1) + numbers, return_inverse=True)

    def values(row: int) -> tuple[Hashable, ...]:
        return tuple(lines[name][row].as_py() for name in columns)

    return codes, values


def in_order(keys: Iterable[Key]) -> list[Key]:
    """As Spark sorts: nothing comes first."""
    return sorted(keys, key=lambda key: tuple((value is not None, value) for value in key))
