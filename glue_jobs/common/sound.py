"""Are the archive's files as their manifests say? A damaged file must not give a smaller number.

Names and sizes are compared by listing the bucket, numbers of rows by the files' footers. Values are not compared: a
file with other values passes, if it has as many rows and the same size.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

from glue_jobs.common.bucket import Bucket
from glue_jobs.common.failures import JobError, Unreadable, ends_the_run
from glue_jobs.common.manifest import Manifest, Part, files_of, load, table
from glue_jobs.common.schemas import TABLES

_CANT = "it can't be read"
_GONE = "it is not there"
_FILE = re.compile(r"(?:[Ff]ile|\w+:) \S*?(archive/\w+/day=([\d-]{10})/[^\s']*?\.parquet)")
_PARQUET = re.compile(
    r"is not a Parquet file|corrupted file: |[Cc]an ?not read class org\.apache\.parquet|TProtocolException|"
    r"ZstdIOException|Decompression error|SchemaColumnConvertNotSupportedException|"
    r"org\.apache\.parquet\.[\w.$]*Exception"
)
_STORE = re.compile(
    r"(?:amazon\w*|awssdk|s3a?|kms|java\.net|javax\.net)\.[\w.$]*(?:Exception|Error)\b|Access ?Denied|SlowDown"
)
"""What S3 or the network says. Parquet's errors may wrap it."""


class Changed(JobError):
    """The archive became another one while it was read."""


def refuse_damaged(
    bucket: Bucket, manifests: Sequence[Manifest], topics: Collection[str] | None = None
) -> None:
    """Raises Unreadable: a file of these topics (all of them) is missing, or has another size. Raises Changed."""
    for name in TABLES:
        for manifest in manifests:
            files = [file for _, part in _parts([manifest], name, topics) for file in part.files]
            sizes = _sizes(bucket, f"archive/{name}/day={manifest.day}", topics) if files else {}
            for file in files:
                size = sizes.get(file.name)
                if size != file.size:
                    why = _GONE if size is None else f"it has {size} bytes, and had {file.size}"
                    raise _refusal(bucket, manifest.day, [file.name], why)


def sound_table(
    spark: SparkSession,
    bucket: Bucket,
    name: str,
    manifests: Sequence[Manifest],
    topics: Collection[str] | None = None,
) -> DataFrame:
    """As `manifest.table`, if the files have as many rows as the manifests say: that reads their footers only. Raises
    Unreadable, Changed."""
    rows = table(spark, bucket, name, manifests, topics)
    counts = _counts(rows)
    for day, part in _parts(manifests, name, topics):
        count = counts.get((day, part.topic), 0)
        if count != part.rows:
            why = f"there are {count} rows, and were {part.rows}"
            raise _refusal(bucket, day, [file.name for file in part.files], why)
    return rows


@contextmanager
def damage_named(
    bucket: Bucket, manifests: Sequence[Manifest] = (), topics: Collection[str] | None = None
) -> Iterator[None]:
    """Raises Unreadable or Changed in the place of Spark's error about a file of the archive that is missing, or that
    Parquet can't read; where Spark names no file, the files of these manifests are tried. Every other error stays as it
    is: a file that S3 did not give is not damaged."""
    try:
        yield
    except Exception as error:
        if isinstance(error, JobError) or ends_the_run(error):
            raise
        file = _FILE.search(str(error))
        if file and not bucket.exists(file[1]):
            raise _refusal(bucket, file[2], [file[1]], _GONE) from error
        if not _is_of_parquet(error):
            raise
        days = {
            file.name: day
            for name in TABLES
            for day, part in _parts(manifests, name, topics)
            for file in part.files
        }
        name = file[1] if file else _unreadable(bucket, [*days])
        if not name:
            raise
        raise _refusal(bucket, file[2] if file else days[name], [name], _CANT) from error


def _sizes(bucket: Bucket, day: str, topics: Collection[str] | None) -> dict[str, int]:
    """The sizes of the files of a day's folder, by name."""
    folders = [day] if topics is None else [f"{day}/topic={topic}" for topic in topics]
    return {entry.name: entry.size for folder in folders for entry in bucket.entries(folder)}


def _counts(rows: DataFrame) -> dict[tuple[str, str], int]:
    """How many rows there are, by day and topic."""
    return {
        (str(row["day"]), row["topic"]): row["count"]
        for row in rows.groupBy("day", "topic").count().collect()
    }


def _unreadable(bucket: Bucket, names: Sequence[str]) -> str | None:
    """One of the files that can't be read. Halves are tried, so that the jobs of Spark are few."""
    while len(names) > 1:
        half = names[: len(names) // 2]
        names = names[len(half) :] if _are_readable(bucket, half) else half
    return names[0] if names and not _are_readable(bucket, names) else None


def _are_readable(bucket: Bucket, names: Sequence[str]) -> bool:
    """Can Parquet read all values of these files?"""
    spark = SparkSession.active()
    try:
        for name in TABLES:
            uris = [bucket.uri(file) for file in names if file.startswith(f"archive/{name}/")]
            files_of(spark, bucket, name, uris).write.format("noop").mode("overwrite").save()
    except Exception as error:
        if not _is_of_parquet(error):
            raise
        return False
    return True


def _is_of_parquet(error: Exception) -> bool:
    """Is it the content of a file that can't be read?"""
    text = str(error)
    return bool(_PARQUET.search(text)) and not _STORE.search(text) and not ends_the_run(error)


def _refusal(bucket: Bucket, day: str, names: Sequence[str], why: str) -> JobError:
    """What to say of a day's files, of which one is not as it was when its manifest was read."""
    manifest = load(bucket, day)
    known = {file.name for name in TABLES for file in manifest.files(name)} if manifest else set()
    if not known.issuperset(names):
        return Changed(f"The archive of {day} changed meanwhile: run the job again.")
    if len(names) == 1:
        subject, theirs, them = f"{names[0]} is damaged", "its former version in its place", "it"
    else:
        folder = names[0].rpartition("/")[0]
        subject = f"One of the {len(names)} files in {folder} is damaged, which one is not known"
        theirs, them = "their former versions in their places", "all of them"
    return Unreadable(
        f"{subject}: {why}. Put {theirs}, or, if the journal of {day} is whole, delete {them} and run the archive with "
        f"--window {day}."
    )


def _parts(
    manifests: Sequence[Manifest], name: str, topics: Collection[str] | None
) -> Iterator[tuple[str, Part]]:
    """The partitions of a table, each with its day."""
    for manifest in manifests:
        for part in manifest.tables.get(name, ()):
            if topics is None or part.topic in topics:
                yield manifest.day, part
