"""From the journal's lines to the tables' rows: pure, DataFrame to DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from glue_jobs.common.checksums import hash_of
from glue_jobs.common.schemas import DELIVERIES, JOURNAL, LATEST_MS, MESSAGES, ORDER, TABLES, TIMES_MS

SHARD = ("topic", "topic_uid", "shard")
READABLE = "topic is not null and topic_uid is not null and shard is not null and offset is not null"
ROW, VOID, ELSEWHERE = "row", "void", "elsewhere"
"""The kinds of what `messages` makes: a row; an offset without a message; a row whose body is still to be fetched."""

KIND = "kind"
"""The column that tells them."""

TIMES = {MESSAGES: "accepted_ms", DELIVERIES: "started_ms"}
"""The time of a line, whose day is the line's."""

DAY_MS = 86_400_000

NAME = "cast(body as string) as name"
"""Of a row whose body is still to be fetched: the name of that."""

STRETCH = 65_536
"""Offsets of which attempts are told together."""

FILE = "_metadata.file_path as file"
_MESSAGE_KEY = (*SHARD, "offset")
_ATTEMPT_KEY = (*ORDER[DELIVERIES], "group_uid", "consumer_uid", "started_ms", "trace")


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


def messages(lines: DataFrame, files: int) -> DataFrame:
    """Rows of `messages` from readable lines, sorted, in so many tasks that follow one another, with their `kind`,
    which the proof needs and no reader. One for each offset, by the last edition. Of a body that lies elsewhere they
    have the name."""
    latest = _first_of(arranged(lines, files, _MESSAGE_KEY), _MESSAGE_KEY, F.col("edition").desc())
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


def without_rows(lines: DataFrame) -> DataFrame:
    """Of readable lines the rows of other kinds than ROW."""
    suspects = lines.where("void is not null or body_blob is not null or edition > 0")
    return messages(suspects, 1).where(F.col(KIND) != ROW)


def with_bodies(rows: DataFrame, bodies: DataFrame, archived_rows: DataFrame) -> DataFrame:
    """Rows that have the `name` of their body with the body itself: from `bodies` (columns `name` and `bytes`) or, if a
    file is missing, from what was archived of the same message before."""
    before = archived_rows.select(*_MESSAGE_KEY, "id", F.col("body").alias("archived"))
    rows_with_both = rows.join(bodies, ["name"], "left").join(before, [*_MESSAGE_KEY, "id"], "left")
    return rows_with_both.withColumn("body", F.coalesce("bytes", "archived"))


def coverage(rows: DataFrame) -> DataFrame:
    """The offsets of each shard in rows of `messages` that have the name of their `file`, in short form: of 64 times
    `step` offsets from `first` on, those in `bits`, `step` of them to a bit. `rows` counts them, and `checksum` is the
    exclusive or of their hashes."""
    bit = "shiftleft(1L, cast(pmod({}, 64) as int))"
    words = rows.groupBy("file", *SHARD, F.expr("offset div 64").alias("word")).agg(
        F.bit_or(F.expr(bit.format("offset"))).alias("bits"),
        F.count("*").alias("rows"),
        F.bit_xor(hash_of(MESSAGES)).alias("checksum"),
    )
    full = F.col("bits") == -1
    first = F.when(full, F.expr("word - pmod(word, 64)")).otherwise(F.col("word")) * 64
    step = F.when(full, 64).otherwise(1)
    return words.groupBy("file", *SHARD, first.alias("first"), step.alias("step")).agg(
        F.bit_or(F.when(full, F.expr(bit.format("word"))).otherwise(F.col("bits"))).alias("bits"),
        F.sum("rows").alias("rows"),
        F.bit_xor("checksum").alias("checksum"),
    )


def deliveries(lines: DataFrame, ids: DataFrame, files: int) -> DataFrame:
    """Rows of `deliveries` from readable lines, one for each attempt (a redrive is none), sorted, in so many tasks that
    follow one another. `ids` are rows of `messages`, which tell the ids."""
    places = ids.select(*_MESSAGE_KEY, "id")
    attempts = lines.where("outcome <> 'REDRIVEN'").join(places, [*_MESSAGE_KEY], "left")
    attempts = arranged(attempts.withColumn("started_at", _moment("started_ms")), files, ORDER[DELIVERIES])
    return _first_of(attempts, _ATTEMPT_KEY, F.col("attempt")).select(*TABLES[DELIVERIES].names)


def _moment(name: str) -> Column:
    """A time that is in ms; null for one that no calendar has, which would end the day's run."""
    milliseconds = F.col(name)
    return F.timestamp_millis(F.when(milliseconds.between(*TIMES_MS), milliseconds))


def arranged(rows: DataFrame, files: int, columns: Sequence[str]) -> DataFrame:
    """The rows in so many tasks, by these columns."""
    return rows.repartition(1) if files == 1 else rows.repartitionByRange(files, *columns)


def _first_of(rows: DataFrame, key: Sequence[str], order: Column) -> DataFrame:
    """One row for each key, sorted by it: a key that begins with a table's order spares another sort."""
    alike = Window.partitionBy(*key).orderBy(order)
    return rows.withColumn("n", F.row_number().over(alike)).where("n = 1").drop("n")
