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
from infra import glue

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


def test_athena_knows_the_columns_that_the_files_have() -> None:
    columns = {
        table: [(field.name, field.dataType.simpleString()) for field in TABLES[table]] for table in TABLES
    }
    resources = glue.glue("p", "artifacts", "code", archive=False, log_days=1, topic="T").values()
    inputs = [each["Properties"]["TableInput"] for each in resources if each["Type"] == "AWS::Glue::Table"]
    assert {
        table["Name"]: [(each["Name"], each["Type"]) for each in table["StorageDescriptor"]["Columns"]]
        for table in inputs
    } == columns


def test_a_body_is_the_bytes_that_stand_in_a_line(spark: SparkSession) -> None:
    bodies: tuple[dict[str, Any], ...] = (
        {"body": "ä"},
        {"body": None, "body_base64": "AP8="},
        {"body": ""},
        {"body": None},
    )
    lines = [journals.message(n, **body) for n, body in enumerate(bodies)]
    rows = transforms.messages(journal(spark, MESSAGES, *lines), 1)
    assert values_of(rows, "offset", "body") == [(0, "ä".encode()), (1, b"\x00\xff"), (2, b""), (3, None)]


def test_an_attempt_becomes_a_row_with_the_id_of_its_message(spark: SparkSession) -> None:
    line = attempt_line(7, 1.5, shard=3, attempt=2, duration_ms=9, outcome="RETRY", detail="503")
    ids = frame(
        spark,
        MESSAGES,
        [archived_row(7, "its", shard=3), archived_row(7, "other"), archived_row(8, "next", shard=3)],
    )
    attempts = transforms.deliveries(journal(spark, DELIVERIES, line), ids, 1)
    assert attempts.columns == TABLES[DELIVERIES].names
    in_ms = attempts.withColumn("started_at", F.unix_millis("started_at"))
    assert values_of(in_ms, *attempts.columns) == [
        ("orders", "u1", "billing", "g1", 3, 7, "its", 2, "c", BEGIN_MS + 1500, 9, "RETRY", "503"),
    ]


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


def test_an_attempt_belongs_to_its_own_life_of_the_topic(spark: SparkSession) -> None:
    ids = frame(
        spark, MESSAGES, [archived_row(0, "first life"), archived_row(0, "second life", topic_uid="u2")]
    )
    lines = [attempt_line(0, topic_uid=uid) for uid in ("u1", "u2", "u3")]
    attempts = transforms.deliveries(journal(spark, DELIVERIES, *lines), ids, 1)
    assert values_of(attempts, "topic_uid", "id") == [
        ("u1", "first life"),
        ("u2", "second life"),
        ("u3", None),
    ]


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
