"""A checksum of rows, independent of their order: the exclusive or of their hashes."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glue_jobs.common.schemas import TABLES

_UNSIGNED = 2**64 - 1


def checksums(rows: DataFrame, table: str, *by: str) -> DataFrame:
    """By these columns: how many rows, and their `checksum`."""
    return rows.groupBy(*by).agg(F.count("*").alias("rows"), F.bit_xor(hash_of(table)).alias("checksum"))


def hash_of(table: str) -> Column:
    """A row's hash. Each value is followed by whether it is null, so that two neighbours can't change places."""
    columns: list[Column] = []
    for field in TABLES[table]:
        column = F.col(field.name)
        columns += [F.map_entries(column) if field.name == "headers" else column, column.isNull()]
    return F.xxhash64(*columns)


def in_hex(checksum: int) -> str:
    """As manifests and names of files have it: without a sign."""
    return f"{checksum & _UNSIGNED:X}"
