"""A partition's rows into fewer files by Arrow: through the spill, so that memory does not grow with them."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from glue_jobs.archiving import publish
from glue_jobs.archiving.engine import Topic, Unusual
from glue_jobs.archiving.on_arrow import rows
from glue_jobs.archiving.on_arrow.files import Files
from glue_jobs.archiving.on_arrow.hashes import checksum
from glue_jobs.archiving.on_arrow.lines import only_usual
from glue_jobs.archiving.on_arrow.spill import Key, Spill, in_order, partition
from glue_jobs.archiving.on_arrow.workers import Workers
from glue_jobs.common.bucket import Bucket, Entry
from glue_jobs.common.manifest import Part
from glue_jobs.common.schemas import ORDER

MOST_BYTES = 600_000_000
"""Of a partition's files, beyond which it is Spark's, which can use more than one machine."""
_BATCH_BYTES = 16_000_000  # of rows that are read together
_BUFFER_BYTES = 1 << 20  # of a column that is read from a file


def is_for_arrow(part: Part) -> bool:
    """Is it small enough for one machine?"""
    return part.bytes <= MOST_BYTES


def write_aside(bucket: Bucket, table: str, day: str, part: Part, files: int) -> Part:
    """Write a partition's rows, sorted, into so many files in a temporary folder, and read them again as a whole:
    the old files will be deleted, and the journal may have expired. Returns the new part. Raises Unusual, Mismatch."""
    aside, places = publish.folder_aside(table, day), rows.PLACES[table]
    bucket.delete(aside)
    with tempfile.TemporaryDirectory(prefix="headrace-compaction-") as folder, Workers() as workers:
        spill = Spill(Path(folder) / "spill")
        batches = _batches(bucket, table, part.files, Path(folder))
        for parts in workers.map_ahead(lambda batch: partition(batch, places), batches):
            spill.put(parts)
        keys = in_order(spill.counts)

        def take_sorted(key: Key) -> pa.Table:
            return _sort_block(table, spill.take(key), key)

        new_files = Files(
            bucket=bucket,
            home=f"{aside}/of={part.topic}",
            folder=Path(folder) / "files",
            schema=rows.TABLES[table],
            most=math.ceil(sum(spill.counts.values()) / files),
        )
        for block in workers.map_ahead(take_sorted, keys):
            new_files.add(block)
        new_files.close()
        entries = publish.files_aside(bucket, table, day).get(part.topic, ())
        total = _read_again(bucket, table, entries, Path(folder), workers)
    return publish.part(part.topic, total.rows, total.checksum, entries)


def _read_again(bucket: Bucket, table: str, files: Sequence[Entry], folder: Path, workers: Workers) -> Topic:
    """What files hold, every value of them. Raises Mismatch: one can't be read."""
    total = Topic()

    def count_and_checksum(batch: pa.Table) -> tuple[int, int]:
        return batch.num_rows, checksum(batch)

    try:
        for count, batch_checksum in workers.map_ahead(
            count_and_checksum, _batches(bucket, table, files, folder)
        ):
            total.add(count, batch_checksum)
    except Unusual as error:
        raise publish.Mismatch(f"What was written can't be read again: {error}") from error
    return total


def _batches(bucket: Bucket, table: str, files: Sequence[Entry], folder: Path) -> Iterator[pa.Table]:
    """The rows of files, some at a time. Raises Unusual."""
    schema = rows.TABLES[table]
    for file in files:
        path = folder / "file.parquet"
        if not bucket.get_file(file.name, path):
            raise Unusual(f"{file.name} is not there.")
        try:
            with pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, page_checksum_verification=True) as content:
                if content.schema_arrow.names != schema.names:
                    raise Unusual(f"{file.name} has other columns.")
                for batch in content.iter_batches(_rows_at_once(content.metadata), use_threads=False):
                    yield pa.Table.from_batches([batch]).cast(schema)
        except (pa.ArrowException, OSError) as error:
            raise Unusual(f"{file.name}: {error}") from error
        path.unlink()


def _rows_at_once(metadata: pq.FileMetaData) -> int:
    size = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    row_count: int = _BATCH_BYTES * metadata.num_rows // max(1, size)
    return max(1, row_count)


@only_usual()
def _sort_block(table: str, block: pa.Table, key: Key) -> pa.Table:
    place = rows.place_of(table, key)
    names = [name for name in ORDER[table] if name not in place]
    return rows.table(rows.TABLES[table], rows.sorted_by(block, names), place)
