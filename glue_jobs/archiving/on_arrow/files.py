"""Rows as Parquet files: written on this machine, looked at once more, and put aside in the bucket."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from glue_jobs.archiving.publish import Mismatch
from glue_jobs.common.bucket import Bucket

_GROUP_BYTES = 64_000_000  # of rows in memory that become a group of them in the file
_LEVEL = 3  # of zstd, as Spark has it


class Files:
    """The files of a topic, with about `most` rows each, which begin at `home` in the bucket. `local` are where they
    lie on this machine until their folder goes."""

    def __init__(self, *, bucket: Bucket, home: str, folder: Path, schema: pa.Schema, most: int) -> None:
        self._bucket, self._home, self._folder, self._schema, self._most = bucket, home, folder, schema, most
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._offsets: list[pa.ChunkedArray] = []  # of each group of rows
        self._rows = self._waiting_bytes = 0
        self.local: list[Path] = []

    def add(self, rows: pa.Table) -> None:
        """Write rows, which follow those that were added before."""
        while rows.num_rows:
            part = rows.slice(0, self._most - self._rows)
            self._waiting.append(part)
            self._rows += part.num_rows
            self._waiting_bytes += part.nbytes
            rows = rows.slice(part.num_rows)
            if self._rows == self._most:
                self.close()
            elif self._waiting_bytes > _GROUP_BYTES:
                self._write()

    def close(self) -> None:
        """End the file that is open, if one is. Raises Mismatch: it does not hold the offsets that were written."""
        if not self._rows:
            return
        self._write().close()
        path = self.local[-1]
        self._look_again(path)
        self._bucket.put_file(f"{self._home}/{path.name}", path)
        self._writer, self._offsets, self._rows = None, [], 0
        pa.default_memory_pool().release_unused()

    def _look_again(self, path: Path) -> None:
        try:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                groups = (file.read_row_group(n, columns=["offset"]) for n in range(file.num_row_groups))
                is_alike = file.num_row_groups == len(self._offsets) and all(
                    group["offset"].equals(offsets)
                    for group, offsets in zip(groups, self._offsets, strict=True)
                )
        except (pa.ArrowException, OSError) as error:
            raise Mismatch(f"{path.name}, which was written, can't be read again: {error}") from error
        if not is_alike:
            raise Mismatch(f"{path.name} does not hold the rows that were written")

    def _write(self) -> pq.ParquetWriter:
        """Write what waits as one group of rows: values that come again are told once in each."""
        writer = self._open()
        if self._waiting:
            rows = pa.concat_tables(self._waiting)
            writer.write_table(rows, row_group_size=rows.num_rows)
            self._offsets.append(rows["offset"])
            self._waiting, self._waiting_bytes = [], 0
        return writer

    def _open(self) -> pq.ParquetWriter:
        if not self._writer:
            self._folder.mkdir(parents=True, exist_ok=True)
            self.local.append(self._folder / f"part-{len(self.local):05}.parquet")
            self._writer = pq.ParquetWriter(
                self.local[-1],
                self._schema,
                compression="zstd",
                compression_level=_LEVEL,
                store_schema=False,  # what Spark would not write either
                write_page_checksum=True,
            )
        return self._writer
