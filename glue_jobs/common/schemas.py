"""The forms of what the jobs read and write. Versioned: a reader meets every version that was ever written.

The journal's lines are described in docs/journal.md, the tables in docs/archive.md.
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from glue_jobs.common.columns import COLUMNS

MESSAGES, DELIVERIES = COLUMNS

JOURNAL_VERSION = 1
"""Raised only when a line could be misread by who knows the version before; new fields alone do not raise it."""

TIMES_MS = (-62_135_596_800_000, 253_402_300_799_999)
"""The years 1 to 9999, which all readers know."""

LATEST_MS = 4_102_444_800_000
"""The year 2100: no sound row is as late."""


_TYPES = {
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "binary": BinaryType(),
    "array<string>": ArrayType(StringType()),
    "map<string,string>": MapType(StringType(), StringType()),
}


def _struct(columns: str) -> StructType:
    pairs = (each.split() for each in columns.split(", "))
    return StructType([StructField(name, _TYPES[kind]) for name, kind in pairs])


TABLES = {
    table: _struct(", ".join(f"{name} {kind}" for name, (kind, _) in columns.items()))
    for table, columns in COLUMNS.items()
}
"""The columns of the tables, as they stand in their files."""

ORDER = {
    MESSAGES: ("topic", "topic_uid", "shard", "offset"),
    DELIVERIES: ("topic", "group", "topic_uid", "shard", "offset", "started_at"),
}
"""How rows of a file are sorted."""

JOURNAL = {
    MESSAGES: _struct(
        "v int, topic string, topic_uid string, shard int, offset bigint, id string, edition bigint, "
        "accepted_ms bigint, tag string, keys array<string>, ordering_key string, headers map<string,string>, "
        "content_type string, body string, body_base64 string, body_blob string, void string, tenant string"
    ),
    DELIVERIES: _struct(
        "v int, topic string, topic_uid string, group string, group_uid string, shard int, offset bigint, "
        "attempt int, consumer string, consumer_uid string, started_ms bigint, duration_ms bigint, outcome string, "
        "detail string, trace string"
    ),
}
"""The journal's lines, by the folder they are in."""


def with_day(table: str) -> StructType:
    """What is read from a table: its columns, and the day that its folders tell."""
    return StructType([*TABLES[table], StructField("day", DateType())])
