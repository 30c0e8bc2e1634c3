"""A small archive, made by hand: rows as Parquet files that manifests name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from glue_jobs.archiving import publish
from glue_jobs.common.checksums import checksums
from glue_jobs.common.manifest import Manifest, Part, save
from glue_jobs.common.schemas import DELIVERIES, MESSAGES, TABLES, with_day

from .journals import Place

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)


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
    """Rows of a table as they are read from the archive: with their day."""
    time = {MESSAGES: "accepted_at", DELIVERIES: "started_at"}[table]
    schema = with_day(table)
    filled_rows = [{**row, "day": row[time].date()} for row in rows]
    return spark.createDataFrame([tuple(row[name] for name in schema.names) for row in filled_rows], schema)


def fill(place: Place, **tables: Iterable[dict[str, Any]]) -> None:
    """Write rows of the tables into a bucket, and the manifests of their days."""
    parts: defaultdict[str, dict[str, list[Part]]] = defaultdict(lambda: defaultdict(list))
    for table, rows in tables.items():
        all_rows = frame(place.spark, table, rows)
        for day, topic in sorted(tuple(row) for row in all_rows.select("day", "topic").distinct().collect()):
            mine = all_rows.where((all_rows["day"] == day) & (all_rows["topic"] == topic))
            folder = f"archive/{table}/day={day}/topic={topic}"
            mine.select(*TABLES[table].names).coalesce(1).write.parquet(place.bucket.uri(folder))
            files = tuple(e for e in place.bucket.entries(folder) if e.name.endswith(".parquet"))
            [sums] = checksums(mine, table).collect()
            parts[str(day)][table].append(publish.part(topic, sums["rows"], sums["checksum"], files))
    for day, parts_by_table in parts.items():
        manifest = Manifest(day, 24, "", {name: tuple(each) for name, each in parts_by_table.items()}, ())
        save(place.bucket, manifest)
