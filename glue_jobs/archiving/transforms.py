"""From the journal's lines to the tables' rows: pure, DataFrame to DataFrame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from glue_jobs.common.checksums import hash_of
from glue_jobs.common.schemas import DELIVERIES, JOURNAL, LATEST_MS, MESSAGES, TABLES, TIMES_MS

SHARD = ("topic", "topic_uid", "shard")
READABLE = "topic is not null and topic_uid is not null and shard is not null and offset is not null"
ROW, VOID, ELSEWHERE = "row", "void", "elsewhere"
"""The kinds of what `messages` makes: a row; an offset without a message; a row whose body is still to be fetched."""

KIND = "kind"
"""The column that tells them, and makes folders where they lie aside."""

TIMES = {MESSAGES: "accepted_ms", DELIVERIES: "started_ms"}
"""The time of a line, whose day is the line's."""

DAY_MS = 86_400_000

NAME = "cast(body as string) as name"
"""Of a row whose body is still to be fetched: the name of that."""

_STRETCH = 4_096  # neighbours stay together where a topic is split
_MESSAGE_KEY = (*SHARD, "offset")
_ATTEMPT_KEY = (*SHARD, "offset", "group", "group_uid", "consumer_uid", "started_ms", "trace")


def of_another_day(table: str, day: date) -> Column:
    """Does a line belong to another day, although it lies in the journal of this one? Its time says so."""
    at, begin_ms = (
        F.col(TIMES[table]),
        int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1000,
    )
    is_known, is_own = at.between(0, LATEST_MS - 1), at.between(begin_ms, begin_ms + DAY_MS - 1)
    return F.coalesce(is_known & ~is_own, F.lit(False))


def lines_of_journal(table: str, rows: DataFrame) -> DataFrame:
    """Rows of the journal as day, hour and line."""
    at = F.timestamp_millis(TIMES[table])
    line = F.to_json(F.struct(*JOURNAL[table].names))
    return rows.select(
        F.date_format(at, "yyyy-MM-dd").alias("day"),
        F.date_format(at, "HH").alias("hour"),
        line.alias("line"),
    )


def readable_lines(lines: DataFrame) -> DataFrame:
    """The lines that say where they belong; a broken line says nothing."""
    return lines.where(READABLE)


def messages(lines: DataFrame, parts_by_topic: Mapping[str, int]) -> DataFrame:
    """Rows of `messages` from readable lines, with their `kind`, which the proof needs and no reader. One for each
    offset, by the last edition. Of a body that lies elsewhere they have the name. A topic's rows come together; those
    of a topic in `parts_by_topic` in so many parts."""
    latest = _first_of(_repartition_by_topic(lines, parts_by_topic), _MESSAGE_KEY, F.col("edition").desc())
    kind = (
        F.when(F.col("void").isNotNull(), VOID).when(F.col("body_blob").isNotNull(), ELSEWHERE).otherwise(ROW)
    )
    body = "coalesce(cast(body_blob as binary), cast(body as binary), unbase64(body_base64))"
    values = {
        "accepted_at": _moment("accepted_ms"),
        "keys": F.coalesce("keys", F.array().cast("array<string>")),
        "headers": F.coalesce("headers", F.create_map().cast("map<string,string>")),
        "body": F.expr(body),
    }
    return latest.withColumn(KIND, kind).withColumns(values).select(*TABLES[MESSAGES].names, KIND)


def with_bodies(rows: DataFrame, files: DataFrame, archived_rows: DataFrame) -> DataFrame:
    """The rows with their bodies: from `files` (columns `name` and `bytes`) or, if a file is missing, from what was
    archived of the same message before."""
    before = archived_rows.select(*_MESSAGE_KEY, "id", F.col("body").alias("archived"))
    rows_with_files = rows.join(files, rows["body"] == files["name"].cast("binary"), "left")
    rows_with_both = rows_with_files.join(before, [*_MESSAGE_KEY, "id"], "left")
    full_rows = rows_with_both.withColumns({"body": F.coalesce("bytes", "archived"), "kind": F.lit(ROW)})
    return full_rows.select(*rows.columns).repartition("topic")


def archived_bodies(rows: DataFrame, archived_rows: DataFrame) -> DataFrame:
    """The names of those bodies of `rows` that were archived before."""
    archived_keys = archived_rows.where("body is not null").select(*_MESSAGE_KEY, "id")
    return rows.join(archived_keys, [*_MESSAGE_KEY, "id"], "left_semi").selectExpr(NAME)


def coverage(rows: DataFrame) -> DataFrame:
    """The offsets of each shard in the rows that `messages` makes, in short form: of 64 times `step` offsets from
    `first` on, those in `bits`, `step` of them to a bit. `voids` and `rows` count them, and `checksum` is the exclusive
    or of the rows' hashes."""
    void, bit = F.col("kind") == VOID, "shiftleft(1L, cast(pmod({}, 64) as int))"
    words = rows.groupBy(*SHARD, F.expr("offset div 64").alias("word")).agg(
        F.bit_or(F.expr(bit.format("offset"))).alias("bits"),
        F.count_if(void).alias("voids"),
        F.count_if(~void).alias("rows"),
        F.bit_xor(F.when(void, 0).otherwise(hash_of(MESSAGES))).alias("checksum"),
    )
    full = F.col("bits") == -1
    first = F.when(full, F.expr("word - pmod(word, 64)")).otherwise(F.col("word")) * 64
    return words.groupBy(*SHARD, first.alias("first"), F.when(full, 64).otherwise(1).alias("step")).agg(
        F.bit_or(F.when(full, F.expr(bit.format("word"))).otherwise(F.col("bits"))).alias("bits"),
        F.sum("voids").alias("voids"),
        F.sum("rows").alias("rows"),
        F.bit_xor("checksum").alias("checksum"),
    )


def deliveries(lines: DataFrame, ids: DataFrame, parts_by_topic: Mapping[str, int]) -> DataFrame:
    """Rows of `deliveries` from readable lines, one for each attempt (a redrive is none). `ids` are rows of `messages`,
    which tell the ids."""
    places = ids.select(*_MESSAGE_KEY, "id")
    attempts = lines.where("outcome <> 'REDRIVEN'").join(places, [*_MESSAGE_KEY], "left")
    first = _first_of(_repartition_by_topic(attempts, parts_by_topic), _ATTEMPT_KEY, F.col("attempt"))
    return first.withColumn("started_at", _moment("started_ms")).select(*TABLES[DELIVERIES].names)


def _moment(name: str) -> Column:
    """A time that is in ms; null for one that no calendar has, which would end the day's run."""
    milliseconds = F.col(name)
    return F.timestamp_millis(F.when(milliseconds.between(*TIMES_MS), milliseconds))


def _repartition_by_topic(rows: DataFrame, parts_by_topic: Mapping[str, int]) -> DataFrame:
    """A topic's rows in one task; those of a large one in several, by offset."""
    part: Column = F.lit(0)
    for topic, parts in parts_by_topic.items():
        part = F.when(F.col("topic") == topic, F.expr(f"offset div {_STRETCH}") % parts).otherwise(part)
    rows_with_part = rows.withColumn("part", part)
    if not parts_by_topic:
        return rows_with_part.repartition("topic", "part")  # small topics may share a task
    tasks = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    return rows_with_part.repartition(tasks, "topic", "part")


def _first_of(rows: DataFrame, key: Sequence[str], order: Column) -> DataFrame:
    """One row for each key, sorted by the key within a task, where `_repartition_by_topic` has put the rows."""
    alike = Window.partitionBy("topic", "part", *(name for name in key if name != "topic")).orderBy(order)
    return rows.withColumn("n", F.row_number().over(alike)).where("n = 1").drop("n")
