"""The archive's rows, read only after its files were found to hold what the manifests say: a damaged file must not give
a smaller number.

Names and sizes are compared first, which needs no Spark, then every value of the rows, by the checksum.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from glue_jobs.common.bucket import Bucket
from glue_jobs.common.failures import Unreadable, ends_the_run, of_damaged_file
from glue_jobs.common.manifest import VERSION, Manifest, Part, files_of, table
from glue_jobs.common.schemas import TABLES

_UNSIGNED = 2**64 - 1


def checksum(table_name: str) -> Column:
    """The exclusive or of the hashes of a table's rows. The order of rows does not matter."""
    return F.bit_xor(row_hash(table_name))


def row_hash(table_name: str) -> Column:
    """The hash of a row of a table: of all its values."""
    hashed: list[Column] = []
    for each in TABLES[table_name]:
        column = F.col(each.name)
        hashed += [F.map_entries(column) if each.name == "headers" else column, column.isNull()]
    return F.xxhash64(*hashed)


def as_text(number: int) -> str:
    """A checksum as it stands in a manifest: an unsigned number, in hex."""
    return f"{number & _UNSIGNED:X}"


def refuse_damaged(
    bucket: Bucket, manifests: Sequence[Manifest], topics: Collection[str] | None = None
) -> None:
    """Raises Unreadable: a file of these topics (all of them) is missing, or has another size."""
    for name in TABLES:
        for manifest, part in _parts(manifests, name, topics):
            sizes = {each.name: each.size for each in bucket.entries(_folder(part))} if part.files else {}
            for file in part.files:
                size = sizes.get(file.name)
                if size is None:
                    raise Unreadable(of_damaged_file(file.name, manifest.day, "it is not there"))
                if size != file.size:
                    why = f"it has {size} bytes, and had {file.size}"
                    raise Unreadable(of_damaged_file(file.name, manifest.day, why))


def sound_table(
    spark: SparkSession,
    bucket: Bucket,
    name: str,
    manifests: Sequence[Manifest],
    topics: Collection[str] | None = None,
) -> DataFrame:
    """As `manifest.table`, after all its values were read once. Raises Unreadable: rows are not those that a manifest
    names."""
    rows = table(spark, bucket, name, manifests, topics)
    try:
        sums = _sums(rows, name)
    except Exception as error:
        if not ends_the_run(error):
            _refuse_unreadable(spark, bucket, name, manifests, topics)
        raise
    for manifest, part in _parts(manifests, name, topics):
        count, total = sums.get((manifest.day, part.topic), (0, 0))
        if count != part.rows:
            why = f"there are {count} rows, and were {part.rows}"
        elif manifest.v == VERSION and as_text(total) != part.checksum:
            why = "its rows have another checksum"
        else:
            continue
        names = part.files[0].name if len(part.files) == 1 else f"A file of {_folder(part)}"
        raise Unreadable(of_damaged_file(names, manifest.day, why))
    return rows


def _sums(rows: DataFrame, name: str) -> dict[tuple[str, str], tuple[int, int]]:
    """How many rows there are, and their checksum, by day and topic."""
    sums = rows.groupBy("day", "topic").agg(F.count("*").alias("rows"), checksum(name).alias("checksum"))
    return {(str(row["day"]), row["topic"]): (row["rows"], row["checksum"]) for row in sums.collect()}


def _refuse_unreadable(
    spark: SparkSession,
    bucket: Bucket,
    name: str,
    manifests: Sequence[Manifest],
    topics: Collection[str] | None,
) -> None:
    """Look for the file that ended a read: Spark does not always name it. Raises Unreadable, if it is found."""
    for manifest, part in _parts(manifests, name, topics):
        for file in part.files:
            try:
                _sums(files_of(spark, bucket, name, [bucket.uri(file.name)]), name)
            except Exception as error:
                if ends_the_run(error):
                    raise
                raise Unreadable(of_damaged_file(file.name, manifest.day, "it can't be read")) from error


def _parts(
    manifests: Sequence[Manifest], name: str, topics: Collection[str] | None
) -> Iterator[tuple[Manifest, Part]]:
    for manifest in manifests:
        for part in manifest.tables.get(name, ()):
            if topics is None or part.topic in topics:
                yield manifest, part


def _folder(part: Part) -> str:
    return part.files[0].name.rpartition("/")[0] if part.files else "the archive"
