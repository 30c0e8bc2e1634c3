"""From the journal's lines to the tables' rows: small frames in, rows out."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from glue_jobs.archiving import transforms
from glue_jobs.common.checksums import checksums
from glue_jobs.common.schemas import DELIVERIES, JOURNAL, MESSAGES, TABLES

from . import archives, journals
from .archives import BEGIN, frame
from .journals import Line

BEGIN_MS = int(BEGIN.timestamp() * 1000)


def journal(spark: SparkSession, table: str, *lines: Line) -> DataFrame:
    """Lines as they are read from the journal."""
    schema = JOURNAL[table]
    return spark.createDataFrame([tuple(line.get(name) for name in schema.names) for line in lines], schema)


def attempt_line(offset: int, seconds: float = 0, **fields: Any) -> Line:
    """An attempt that began so many seconds after BEGIN."""
    return journals.delivery(offset, started_ms=BEGIN_MS + int(seconds * 1000), **fields)


def archived_row(offset: int, id: str, hours: float = 0, **fields: Any) -> dict[str, Any]:
    """A message of the archive, accepted so many hours after BEGIN."""
    place = {"shard": 0, "offset": offset, "id": id, "topic_uid": "u1"}
    return archives.message(0, minutes=60 * hours, **{**place, **fields})


def values_of(frame: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.select(*names).collect())


def test_an_attempt_is_one_row_however_often_the_journal_tells_it(spark: SparkSession) -> None:
    lines = [
        attempt_line(0),
        attempt_line(0, 5, attempt=2),
        attempt_line(0, group="audit"),
        attempt_line(0, consumer_uid="u2"),
        attempt_line(1),
    ]
    attempts = transforms.deliveries(
        journal(spark, DELIVERIES, *lines, *lines), frame(spark, MESSAGES, []), 1
    )
    assert values_of(attempts, "group", "offset", "attempt") == [
        ("audit", 0, 1), ("billing", 0, 1), ("billing", 0, 1), ("billing", 0, 2), ("billing", 1, 1),
    ]  # fmt: skip


def test_a_redrive_is_no_attempt(spark: SparkSession) -> None:
    lines = journal(
        spark, DELIVERIES, attempt_line(0, outcome="DEAD"), attempt_line(0, 9, outcome="REDRIVEN")
    )
    assert values_of(transforms.deliveries(lines, frame(spark, MESSAGES, []), 1), "outcome") == [("DEAD",)]


def test_a_checksum_is_of_a_topics_rows_in_any_order(spark: SparkSession) -> None:
    rows = [archived_row(n, f"m{n}", topic=topic) for topic in ("a", "b") for n in range(3)]
    forth = checksums(frame(spark, MESSAGES, rows), MESSAGES, "topic")
    back = checksums(frame(spark, MESSAGES, rows[::-1]).repartition(3), MESSAGES, "topic")
    assert values_of(forth, "topic", "rows", "checksum") == values_of(back, "topic", "rows", "checksum")
    (first, rows_a, sum_a), (second, rows_b, sum_b) = values_of(forth, "topic", "rows", "checksum")
    assert (first, rows_a, second, rows_b) == ("a", 3, "b", 3)
    assert sum_a != sum_b


def test_a_column_that_is_added_leaves_the_checksums_of_rows_that_lack_it(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = frame(spark, MESSAGES, [archived_row(0, "m")])
    sums = [values_of(checksums(rows, MESSAGES, "topic"), "checksum")]
    columns = TABLES[MESSAGES].fields
    columns = [*columns[:4], StructField("priority", IntegerType()), *columns[4:]]
    monkeypatch.setitem(TABLES, MESSAGES, StructType(columns))
    for value in (None, 3):
        wider = rows.withColumn("priority", F.lit(value).cast("int"))
        sums.append(values_of(checksums(wider, MESSAGES, "topic"), "checksum"))
    assert sums[0] == sums[1] != sums[2]


APART: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({"body": b"1"}, {"body": b"2"}),
    ({"body": b""}, {"body": None}),
    ({"tag": ""}, {"tag": None}),
    ({"tag": "x", "ordering_key": None}, {"tag": None, "ordering_key": "x"}),
    ({"keys": ["a", "b"]}, {"keys": ["ab"]}),
    ({"headers": {"a": "b"}}, {"headers": {"b": "a"}}),
    ({"id": "m1"}, {"id": "m2"}),
    ({"shard": 1}, {"shard": 2}),
)


def test_a_checksum_tells_rows_apart(spark: SparkSession) -> None:
    sides = [
        [archived_row(0, "m", topic=f"t{n}") | pair[side] for n, pair in enumerate(APART)] for side in (0, 1)
    ]
    before, after = (
        dict(values_of(checksums(frame(spark, MESSAGES, rows), MESSAGES, "topic"), "topic", "checksum"))
        for rows in sides
    )
    assert before.keys() == after.keys()
    assert [pair for n, pair in enumerate(APART) if before[f"t{n}"] == after[f"t{n}"]] == []
