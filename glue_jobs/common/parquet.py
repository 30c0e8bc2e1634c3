"""A look at a single file of the archive, without Spark."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from glue_jobs.common.bucket import Bucket
from glue_jobs.common.schemas import TABLES

_BUFFER_BYTES = 1 << 20  # of a column that is read from a file
_ROWS = 8_192  # at once
_TYPES: dict[type[DataType], pa.DataType] = {
    BinaryType: pa.binary(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    StringType: pa.string(),
    TimestampType: pa.timestamp("us", tz="UTC"),
}


def arrow_schema(table: str) -> pa.Schema:
    """The columns of a table as Arrow writes them."""
    return pa.schema([pa.field(each.name, _arrow(each.dataType)) for each in TABLES[table]])


def is_readable(bucket: Bucket, table: str, name: str) -> bool:
    """Can every value of a table's file be read, in the table's types? False also if it is not there. Raises what the
    store says if it does not give the file."""
    with tempfile.TemporaryDirectory(prefix="headrace-look-") as folder:
        path = Path(folder) / "file.parquet"
        if not bucket.get_file(name, path):
            return False
        try:
            with pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, page_checksum_verification=True) as content:
                if not _has_types(content.schema_arrow, TABLES[table]):
                    return False
                for _ in content.iter_batches(_ROWS, use_threads=False):
                    pass
        except (pa.ArrowException, OSError):
            return False
        return True


def _has_types(columns: pa.Schema, schema: StructType) -> bool:
    return all(
        each.name not in columns.names or columns.field(each.name).type == _arrow(each.dataType)
        for each in schema
    )


def _arrow(kind: DataType) -> pa.DataType:
    """A type of Spark as Arrow reads it from a file."""
    if isinstance(kind, ArrayType):
        return pa.list_(_arrow(kind.elementType))
    if isinstance(kind, MapType):
        return pa.map_(_arrow(kind.keyType), _arrow(kind.valueType))
    return _TYPES[type(kind)]
