"""Few large files in the place of many small ones, with the same rows."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date

from pyspark.sql import DataFrame, SparkSession

from glue_jobs.archiving import aside, publish
from glue_jobs.common import arguments, manifest
from glue_jobs.common.arguments import progress, summary
from glue_jobs.common.bucket import Bucket
from glue_jobs.common.damage import name_damage
from glue_jobs.common.failures import ends_the_run, sentence
from glue_jobs.common.manifest import Manifest, Part
from glue_jobs.common.schemas import ORDER, TABLES
from glue_jobs.common.session import Start

JOB = "compact"
_MB = 1024 * 1024


@dataclass(kw_only=True, frozen=True, slots=True)
class Target:
    """Which days (None: from the first, to the last), which table (None: both), and how large files should become."""

    first: date | None
    last: date | None
    target_mb: int
    grace_ms: int
    now_ms: int
    table: str | None = None


@dataclass
class Totals:
    """What one run did. `removed` are files that were replaced earlier, or by this run if there is no grace; `failed`
    says which days, and which of their partitions, it could not do, and why."""

    partitions: int = 0
    rows: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    removed: int = 0
    seconds: float = 0.0
    failed: dict[str, str] = field(default_factory=dict)

    def add(self, old: Part, new: Part) -> None:
        self.partitions += 1
        self.rows += new.rows
        self.files_before += len(old.files)
        self.files_after += len(new.files)
        self.bytes_before += old.bytes
        self.bytes_after += new.bytes


def run(start: Start, bucket: Bucket, choices: argparse.Namespace) -> int:
    """Do the job; its exit code."""
    grace_ms, now_ms = choices.grace_minutes * 60_000, int(choices.now.timestamp() * 1000)
    target = Target(
        first=choices.first,
        last=choices.last,
        target_mb=choices.target_mb,
        grace_ms=grace_ms,
        now_ms=now_ms,
        table=choices.table,
    )
    totals = compact(start, bucket, target)
    tell(totals)
    return arguments.FAILED if totals.failed else arguments.DONE


def compact(start: Start, bucket: Bucket, target: Target) -> Totals:
    """Compact day after day; a bad partition or day stops no other. Raises what would stop every day."""
    start_time, totals = time.monotonic(), Totals()
    for name in manifest.days(bucket, target.first, target.last):
        with _failure_told(bucket, name, totals):
            _compact_day(start, bucket, name, target, totals)
    totals.seconds = time.monotonic() - start_time
    return totals


@contextmanager
def _failure_told(
    bucket: Bucket, name: str, totals: Totals, manifests: Sequence[Manifest] = (), topic: str = ""
) -> Iterator[None]:
    """What fails within stops nothing else. Raises what would stop everything."""
    try:
        with name_damage(bucket, manifests, [topic]):
            yield
    except Exception as error:
        if ends_the_run(error):
            raise
        totals.failed[name] = sentence(error)
        progress(f"{name} failed: {sentence(error)}")


def _compact_day(start: Start, bucket: Bucket, name: str, target: Target, totals: Totals) -> None:
    day = manifest.load(bucket, name)
    if not day:
        return
    for table in [target.table] if target.table else TABLES:
        for part in day.tables.get(table, ()):
            files = file_count(part, target.target_mb * _MB)
            if files < len(part.files):
                partition = f"{name} {table} {part.topic}"
                progress(f"{partition}: {len(part.files)} files to {files} …")
                with _failure_told(bucket, partition, totals, [day], part.topic):
                    totals.add(part, _rewrite(start, bucket, name, table, part, files, target))
    latest = manifest.load(bucket, name) or day
    totals.removed += publish.sweep(bucket, latest, target.grace_ms, target.now_ms)


def tell(totals: Totals) -> None:
    """The summary."""
    rate = round(totals.bytes_before / _MB / (totals.seconds or 1), 1)
    summary(JOB, **{**vars(totals), "seconds": round(totals.seconds, 1)}, mb_per_second=rate)


def file_count(part: Part, target: int) -> int:
    """How many files of the target size a partition should have."""
    return max(1, math.ceil(part.bytes / target))


def _rewrite(
    start: Start, bucket: Bucket, day: str, table: str, part: Part, files: int, target: Target
) -> Part:
    """A partition in so many sorted files. Raises Mismatch: then nothing was changed."""
    copy = write_aside(start(), bucket, table, day, part, files)
    if not copy or (copy.rows, copy.checksum) != (part.rows, part.checksum):
        raise publish.Mismatch(f"{day} {table} {part.topic}: the files do not hold what the manifest says")
    new = publish.move_home(bucket, table, day, copy)
    before: Manifest | None = manifest.load(bucket, day)
    if not before or before.part(table, part.topic) != part:
        raise publish.Mismatch(f"{day} was archived again meanwhile: run the job again")
    publish.switch(bucket, before, before.with_part(table, new), target.now_ms)
    return new


def write_aside(
    spark: SparkSession, bucket: Bucket, table: str, day: str, part: Part, files: int
) -> Part | None:
    """Put a partition's rows aside, sorted, in so many files; what lies there."""
    uris = [bucket.uri(file.name) for file in part.files]
    rows = manifest.files_of(spark, bucket, table, uris).drop("day")
    aside.write_aside(bucket, table, day, repartition_in_order(rows, table, files))
    return aside.read_again(spark, bucket, table, day).get(part.topic)


def repartition_in_order(rows: DataFrame, table: str, files: int) -> DataFrame:
    """A topic's rows in so many partitions (or fewer) that follow one another in the table's order."""
    return rows.coalesce(1) if files == 1 else rows.repartitionByRange(files, *ORDER[table])
