"""Small tables for people: as Parquet, as CSV, and as text."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from glue_jobs.common.bucket import Bucket

Rows = list[dict[str, Any]]

_ROWS_AT_ONCE = 5_000
_BUFFER_BYTES = 1 << 20  # of a column that is read from a file


def write(bucket: Bucket, folder: str, frame: DataFrame) -> Rows:
    """Store a table as Parquet, in `folder`, and as CSV beside it; its rows, whose times are naive and in UTC."""
    frame.coalesce(1).write.mode("overwrite").parquet(bucket.uri(folder))
    with tempfile.TemporaryDirectory(prefix="headrace-table-") as temporary:
        rows = [_naive(row) for row in _stored_rows(bucket, folder, Path(temporary))]
    bucket.write(f"{folder}.csv", as_csv(rows, frame.columns))
    return rows


def _naive(row: dict[str, Any]) -> dict[str, Any]:
    """The same with times that do not say that they are in UTC."""
    return {
        name: each.replace(tzinfo=None) if isinstance(each, datetime) else each for name, each in row.items()
    }


def write_large(
    bucket: Bucket, folder: str, frame: DataFrame, each: Callable[[dict[str, Any]], None]
) -> None:
    """The same of a table without times that may have millions of rows: `each` is called with one after the other."""
    frame.coalesce(1).write.mode("overwrite").parquet(bucket.uri(folder))
    with tempfile.TemporaryDirectory(prefix="headrace-table-") as temporary:
        path = Path(temporary) / "table.csv"
        with path.open("w", newline="") as out:
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(frame.columns)
            for row in _stored_rows(bucket, folder, Path(temporary)):
                writer.writerow([_plain(row[name]) for name in frame.columns])
                each(row)
        bucket.put_file(f"{folder}.csv", path)


def _stored_rows(bucket: Bucket, folder: str, temporary: Path) -> Iterator[dict[str, Any]]:
    """The rows of a folder's files, some thousands in memory at a time."""
    path = temporary / "part.parquet"
    for entry in bucket.entries(folder):
        if entry.name.endswith(".parquet") and bucket.get_file(entry.name, path):
            with pq.ParquetFile(path, buffer_size=_BUFFER_BYTES) as content:
                for batch in content.iter_batches(_ROWS_AT_ONCE, use_threads=False):
                    yield from batch.to_pylist()


def as_csv(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """Rows as CSV with a head. A text that a spreadsheet would take for a formula gets a quote in front."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_plain(row[name]) for name in names] for row in rows)
    return out.getvalue()


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
    return value.isoformat(sep=" ") if isinstance(value, datetime) else value


def as_text(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """Rows in columns, with a head."""
    lines = [names, *(["-" if row[name] is None else str(row[name]) for name in names] for row in rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(names))]
    texts = ([cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines)
    return "\n".join("  ".join(cells).rstrip() for cells in texts)
