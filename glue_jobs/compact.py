"""Turn small files of the archive into sorted ones of a target size.

A partition is rewritten where it would have fewer files. The new files are read again and must have just the rows and
the checksum that the manifest names; then the manifest is switched; the old files stay for readers for a while and go
with a later run. --grace-minutes 0 removes them at once.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

from . import arguments, manifest, publish, session
from .alone import Busy, alone
from .bucket import Bucket
from .manifest import Manifest, Part, TooNew
from .schemas import ORDER, TABLES
from .telling import progress, summary

JOB = "compact"
_MB = 1024 * 1024


def read(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The job's arguments."""
    parser = arguments.reader(JOB, __doc__)
    add = parser.add_argument
    add("--table", choices=[*TABLES], help="only this one")
    add("--from", dest="first", type=arguments.day, help="the first day, in UTC (that of the first manifest)")
    add("--to", dest="last", type=arguments.day, help="the last day (that of the last manifest)")
    add("--target-mb", type=arguments.positive, default=256, help="how large files should become (256)")
    add(
        "--grace-minutes",
        type=arguments.count,
        default=60,
        help="how long replaced files stay for readers (60)",
    )
    add("--now", type=arguments.instant, default=datetime.now(UTC), help=argparse.SUPPRESS)
    found = arguments.parse(parser, argv)
    if found.first and found.last and found.first > found.last:
        parser.error("--from is after --to")
    return found


@dataclass
class Totals:
    """What one run did. `removed` are files that were replaced earlier, or by this run if there is no grace."""

    partitions: int = 0
    rows: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    removed: int = 0

    def add(self, old: Part, new: Part) -> None:
        self.partitions += 1
        self.rows += new.rows
        self.files_before += len(old.files)
        self.files_after += len(new.files)
        self.bytes_before += old.bytes
        self.bytes_after += new.bytes


def run(spark: SparkSession, bucket: Bucket, chosen: argparse.Namespace) -> int:
    """Do the job; its exit code."""
    began, totals = time.monotonic(), Totals()
    now_ms = int(chosen.now.timestamp() * 1000)
    for day in manifest.load_all(bucket, chosen.first, chosen.last):
        for table in [chosen.table] if chosen.table else TABLES:
            for part in day.tables.get(table, ()):
                files = wanted(part, chosen.target_mb * _MB)
                if files < len(part.files):
                    progress(f"{day.day} {table} {part.topic}: {len(part.files)} files to {files} …")
                    totals.add(part, rewrite(spark, bucket, day.day, table, part, files, now_ms))
        latest = manifest.load(bucket, day.day) or day
        totals.removed += publish.sweep(bucket, latest, chosen.grace_minutes * 60_000, now_ms)
    seconds = time.monotonic() - began
    rate = round(totals.bytes_before / _MB / seconds, 1)
    summary(JOB, **vars(totals), seconds=round(seconds, 1), mb_per_second=rate)
    return arguments.DONE


def wanted(part: Part, target: int) -> int:
    """How many files of the target size a partition should have."""
    return max(1, math.ceil(part.bytes / target))


def arranged(rows: DataFrame, table: str, files: int) -> DataFrame:
    """A topic's rows in so many partitions (or fewer) that follow one another in the table's order."""
    return rows.coalesce(1) if files == 1 else rows.repartitionByRange(files, *ORDER[table])


def rewrite(
    spark: SparkSession, bucket: Bucket, day: str, table: str, part: Part, files: int, now_ms: int
) -> Part:
    """Put a partition into so many sorted files; the new one. Raises Mismatch: then nothing was changed."""
    uris = [bucket.uri(file.name) for file in part.files]
    rows = manifest.files_of(spark, bucket, table, uris).drop("day")
    publish.write_aside(bucket, table, day, arranged(rows, table, files))
    found = publish.read_again(spark, bucket, table, day).get(part.topic)
    if not found or (found.rows, found.checksum) != (part.rows, part.checksum):
        raise publish.Mismatch(f"{day} {table} {part.topic}: the files do not hold what the manifest says")
    new = publish.place(bucket, table, day, found)
    before: Manifest | None = manifest.load(bucket, day)
    if not before or before.part(table, part.topic) != part:
        raise publish.Mismatch(f"{day} was archived again meanwhile: run the job again")
    publish.switch(bucket, before, before.with_part(table, new), now_ms)
    return new


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    chosen = read(argv)
    try:
        with alone(chosen.folder), session.start(JOB, chosen.folder, chosen.bucket) as spark:
            return run(spark, Bucket(spark, chosen.bucket), chosen)
    except (TooNew, publish.Mismatch, Busy) as error:
        summary(JOB, error=str(error))
        return arguments.FAILED


if __name__ == "__main__":
    sys.exit(main())
