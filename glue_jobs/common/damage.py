"""Are the archive's files as their manifests say? A damaged file must not give a smaller number, nor another one.

Names and sizes are compared by listing the bucket, rows by reading them once: how many there are, and their checksum.
What an engine says of a file that it can't read decides nothing: the file itself is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from glue_jobs.common.bucket import Bucket
from glue_jobs.common.checksums import checksums, in_hex
from glue_jobs.common.failures import JobError, Unreadable, ends_the_run
from glue_jobs.common.manifest import Manifest, Rows, load, table
from glue_jobs.common.parquet import is_readable
from glue_jobs.common.schemas import TABLES

_CANT = "it can't be read"
_GONE = "it is not there"
_FILE = re.compile(r"(archive/(\w+)/day=([\d-]{10})/[^\s'\"]*?\.parquet)")
"""The name of a file of rows: the name itself, the table, the day."""


class Changed(JobError):
    """The archive became another one while it was read."""


def refuse_damaged(
    bucket: Bucket, manifests: Sequence[Manifest], topics: Collection[str] | None = None
) -> None:
    """Raises Unreadable: a file of these topics (all of them) is missing, or has another size. Raises Changed."""
    for name in TABLES:
        for manifest in manifests:
            files = manifest.table(name).files_of(topics)
            entries = bucket.entries(f"archive/{name}/day={manifest.day}") if files else []
            sizes = {entry.name: entry.size for entry in entries}
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
    """As `manifest.table`, if the files have the rows that the manifests tell of: all are read once. Raises Unreadable,
    Changed."""
    rows = table(spark, bucket, name, manifests, topics)
    sums = {
        (str(each.day), each.topic): Rows(each.rows, in_hex(each.checksum))
        for each in checksums(rows, name, "day", "topic").collect()
    }
    for manifest in manifests:
        for topic, known in manifest.table(name).topics.items():
            found = sums.get((manifest.day, topic), Rows(0, in_hex(0)))
            if (topics is not None and topic not in topics) or found == known:
                continue
            why = "its rows are not those that were archived"
            if found.count != known.count:
                why = f"there are {found.count} rows of {topic}, and were {known.count}"
            names = [file.name for file in manifest.table(name).files_of([topic])]
            raise _refusal(bucket, manifest.day, names, why)
    return rows


@contextmanager
def name_damage(
    bucket: Bucket, manifests: Sequence[Manifest] = (), topics: Collection[str] | None = None
) -> Iterator[None]:
    """Raises Unreadable or Changed in the place of another error, if a file of the archive that the error names is
    missing or can't be read; where Spark names no file, the files of these manifests are looked at. Every other error
    stays as it is: a file that S3 did not give is not damaged."""
    try:
        yield
    except Exception as error:
        if isinstance(error, JobError) or ends_the_run(error):
            raise
        suspects = {file[1]: (file[2], file[3]) for file in _FILE.finditer(str(error))}
        if not suspects and _may_be_of_a_file(error):
            suspects = _files(manifests, topics)
        damage = _damage(bucket, suspects)
        if not damage:
            raise
        name, why = damage
        raise _refusal(bucket, suspects[name][1], [name], why) from error


def _may_be_of_a_file(error: Exception) -> bool:
    """Did Spark raise it at work, not when it planned?"""
    return isinstance(error, Py4JJavaError | PySparkException) and not isinstance(error, AnalysisException)


def _files(manifests: Sequence[Manifest], topics: Collection[str] | None) -> dict[str, tuple[str, str]]:
    """All files, by name: the table and the day."""
    return {
        file.name: (name, manifest.day)
        for name in TABLES
        for manifest in manifests
        for file in manifest.table(name).files_of(topics)
    }


def _damage(bucket: Bucket, suspects: Mapping[str, tuple[str, str]]) -> tuple[str, str] | None:
    """The first of the files that is damaged, and why; None where none is, or where the store does not give them."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    with suppress(OSError, Boto3Error, BotoCoreError, ClientError):
        for name, (kind, _) in suspects.items():
            if not bucket.exists(name):
                return name, _GONE
            if not is_readable(bucket, kind, name):
                return name, _CANT
    return None


def _refusal(bucket: Bucket, day: str, names: Sequence[str], why: str) -> JobError:
    """What to say of a day's files, of which one is not as it was when its manifest was read."""
    manifest = load(bucket, day)
    manifest_names = (
        {file.name for table in manifest.tables.values() for file in table.files} if manifest else set()
    )
    if not manifest_names.issuperset(names):
        return Changed(f"The archive of {day} changed meanwhile: run the job again.")
    if len(names) == 1:
        subject, replacements, files = f"{names[0]} is damaged", "its former version in its place", "it"
    else:
        folder = names[0].rpartition("/")[0]
        subject = f"One of the {len(names)} files in {folder} is damaged, which one is not known"
        replacements, files = "their former versions in their places", "all of them"
    return Unreadable(
        f"{subject}: {why}. Put {replacements}, or, if the journal of {day} is whole, delete {files} and run the "
        f"archive with --window {day}."
    )
