"""Small tables for people: as Parquet, as CSV, and as text."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from glue_jobs.common.bucket import Bucket


def write(spark: SparkSession, bucket: Bucket, folder: str, frame: DataFrame) -> list[dict[str, Any]]:
    """Store a table as Parquet, in `folder`, and as CSV beside it; its rows, whose times are naive and in UTC."""
    frame.coalesce(1).write.mode("overwrite").parquet(bucket.uri(folder))
    copy = spark.read.schema(frame.schema).parquet(bucket.uri(folder))
    rows = rows_of(copy)
    bucket.write(f"{folder}.csv", as_csv(rows, frame.columns))
    return rows


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows of a table, whose times are naive and in UTC: Python would take them into the machine's own zone."""
    times = [field.name for field in frame.schema if isinstance(field.dataType, TimestampType)]
    texts = {name: F.date_format(name, "yyyy-MM-dd HH:mm:ss.SSSSSS") for name in times}
    rows = [row.asDict() for row in (frame.withColumns(texts) if times else frame).collect()]
    for row in rows:
        row |= {name: row[name] and datetime.fromisoformat(row[name]) for name in times}
    return rows


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
