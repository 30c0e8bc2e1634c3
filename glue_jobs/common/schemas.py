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

JOURNAL_VERSION = 1
"""Raised only when a line could be misread by who knows the version before; new fields alone do not raise it."""

MESSAGES, DELIVERIES = "messages", "deliveries"

TIMES_MS = (-62_135_596_800_000, 253_402_300_799_999)
"""The years 1 to 9999, which all readers know."""

LATEST_MS = 4_102_444_800_000
"""The year 2100: no sound row is as late."""


def _struct(**fields: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])  # type: ignore[arg-type]


_text, _int, _long, _time = StringType(), IntegerType(), LongType(), TimestampType()

TABLES = {
    MESSAGES: _struct(
        topic=_text,
        topic_uid=_text,
        shard=_int,
        offset=_long,
        id=_text,
        accepted_at=_time,
        tag=_text,
        keys=ArrayType(_text),
        ordering_key=_text,
        headers=MapType(_text, _text),
        content_type=_text,
        body=BinaryType(),
        tenant=_text,
    ),
    DELIVERIES: _struct(
        topic=_text,
        topic_uid=_text,
        group=_text,
        group_uid=_text,
        shard=_int,
        offset=_long,
        id=_text,
        attempt=_int,
        consumer=_text,
        started_at=_time,
        duration_ms=_long,
        outcome=_text,
        detail=_text,
    ),
}
"""The columns of the tables, as they stand in their files. A topic that was deleted and made again has another
`topic_uid`. `body` holds the bytes as they were sent."""

ORDER = {
    MESSAGES: ("topic", "topic_uid", "shard", "offset"),
    DELIVERIES: ("topic", "group", "topic_uid", "shard", "offset", "started_at"),
}
"""How rows of a file are sorted."""

JOURNAL = {
    MESSAGES: _struct(
        v=_int,
        topic=_text,
        topic_uid=_text,
        shard=_int,
        offset=_long,
        id=_text,
        edition=_long,
        accepted_ms=_long,
        tag=_text,
        keys=ArrayType(_text),
        ordering_key=_text,
        headers=MapType(_text, _text),
        content_type=_text,
        body=_text,
        body_base64=_text,
        body_blob=_text,
        void=_text,
        tenant=_text,
    ),
    DELIVERIES: _struct(
        v=_int,
        topic=_text,
        topic_uid=_text,
        group=_text,
        group_uid=_text,
        shard=_int,
        offset=_long,
        attempt=_int,
        consumer=_text,
        consumer_uid=_text,
        started_ms=_long,
        duration_ms=_long,
        outcome=_text,
        detail=_text,
        trace=_text,
    ),
}
"""The journal's lines, by the folder they are in."""


def with_day(table: str) -> StructType:
    """What is read from a table: its columns, and the day that its folders tell."""
    return StructType([*TABLES[table], StructField("day", DateType())])
