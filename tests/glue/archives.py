"""A small archive, made by hand: rows as Parquet files that manifests name."""

from __future__ import annotations

import tempfile
import uuid
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from glue_jobs.archiving import publish
from glue_jobs.common.checksums import in_hex
from glue_jobs.common.manifest import File, Manifest, Rows, Table, save
from glue_jobs.common.parquet import arrow_schema
from glue_jobs.common.schemas import DELIVERIES, MESSAGES, with_day

from .hashes import checksum
from .journals import Place

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
_DAY = pa.field("day", pa.date32())
_TIMES = {MESSAGES: "accepted_at", DELIVERIES: "started_at"}


def message(number: int, topic: str = "orders", minutes: float = 0, **fields: Any) -> dict[str, Any]:
    """A message, accepted so many minutes after BEGIN; four shards take turns."""
    plain = {
        "topic": topic,
        "topic_uid": f"{topic}-uid",
        "shard": number % 4,
        "offset": number // 4,
        "id": f"m{number}",
        "accepted_at": BEGIN + timedelta(minutes=minutes),
        "tag": None,
        "tenant": None,
        "keys": [],
        "ordering_key": None,
        "headers": {},
        "content_type": "application/json",
        "body": b'{"n":%d}' % number,
    }
    return {**plain, **fields}


def delivery(of: dict[str, Any], group: str = "g", seconds: float = 0, **fields: Any) -> dict[str, Any]:
    """An attempt at a message, begun so many seconds after it was accepted."""
    plain = {
        **{name: of[name] for name in ("topic", "topic_uid", "shard", "offset", "id")},
        "group": group,
        "group_uid": f"{group}-uid",
        "attempt": 1,
        "consumer": "c",
        "started_at": of["accepted_at"] + timedelta(seconds=seconds),
        "duration_ms": 0,
        "outcome": "SUCCESS",
        "detail": "",
    }
    return {**plain, **fields}


def frame(spark: SparkSession, table: str, rows: Iterable[dict[str, Any]]) -> DataFrame:
    """Rows of a table as they are read from the archive: with their day, from a file. Of rows from Python, Spark does
    not know that they are few: it would sort them all for each join."""
    folder = str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:")
    path = Path(folder) / uuid.uuid4().hex
    with_days = [{**row, "day": row[_TIMES[table]].date()} for row in rows]
    pq.write_table(
        pa.Table.from_pylist(with_days, arrow_schema(table).append(_DAY)), path, store_schema=False
    )
    return spark.read.schema(with_day(table)).parquet(path.as_uri())


def fill(place: Place, **tables: Iterable[dict[str, Any]]) -> None:
    """Put rows of the tables into a bucket, as the archive's job would, and the manifests of their days."""
    days: defaultdict[str, dict[str, Table]] = defaultdict(dict)
    for table, rows in tables.items():
        rows_by_day = defaultdict(list)
        for row in rows:
            rows_by_day[str(row[_TIMES[table]].date())].append(row)
        for day, mine in rows_by_day.items():
            days[day][table] = _written(place, table, day, sorted(mine, key=lambda row: str(row["topic"])))
    for day, tables_of_day in days.items():
        save(place.bucket, Manifest(day, 24, "", tables_of_day, ()))


def _written(place: Place, table: str, day: str, rows: list[dict[str, Any]]) -> Table:
    """The rows of a day as one file: by Arrow, because Spark takes seconds for each."""
    home = publish.folder_of(table, day)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "file.parquet"
        all_rows = pa.Table.from_pylist(rows, arrow_schema(table))
        pq.write_table(all_rows, file, compression="zstd", store_schema=False, write_page_checksum=True)
        place.bucket.put_file(f"{home}/part-00000.parquet", file)
    (entry,) = place.bucket.entries(home)
    topics = {
        topic: Rows(len(mine), in_hex(checksum(table, mine)))
        for topic, group in groupby(rows, key=lambda row: str(row["topic"]))
        if (mine := list(group))
    }
    return Table((File(entry.name, entry.size, min(topics), max(topics)),), topics)
