"""A checksum of rows, independent of their order: the exclusive or of their hashes."""

from __future__ import annotations

import zlib

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glue_jobs.common.schemas import TABLES

_UNSIGNED = 2**64 - 1


def checksums(rows: DataFrame, table: str, *by: str) -> DataFrame:
    """By these columns: how many rows, and their `checksum`."""
    return rows.groupBy(*by).agg(F.count("*").alias("rows"), F.bit_xor(hash_of(table)).alias("checksum"))


def hash_of(table: str) -> Column:
    """A row's hash. Each value is followed by its column's mark, so that two neighbours can't change places; a null
    adds nothing, so that a column can be added to the table."""
    columns: list[Column] = []
    for field in TABLES[table]:
        column, mark = F.col(field.name), F.lit(mark_of(field.name))
        columns += [F.map_entries(column) if field.name == "headers" else column]
        columns += [F.when(column.isNotNull(), mark)]
    return F.xxhash64(*columns)


def mark_of(column: str) -> int:
    """What follows a column's value in the hash."""
    return zlib.crc32(column.encode()) >> 1  # what Java calls an int


def in_hex(checksum: int) -> str:
    """As manifests and names of files have it: without a sign."""
    return f"{checksum & _UNSIGNED:X}"
