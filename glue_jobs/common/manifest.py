"""What is in the archive: one manifest a day, written last. Files that no manifest names are not there.

`archive/manifests/<day>.json`. A reader takes the files of the manifests and never sees half a partition, nor rows
twice, while a job is at work beside it: what a new manifest names no more stays for a while (`retired`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from glue_jobs.common import session
from glue_jobs.common.bucket import Bucket, Entry
from glue_jobs.common.failures import JobError, Unreadable
from glue_jobs.common.ranges import Range
from glue_jobs.common.schemas import with_day
from glue_jobs.common.session import empty_table

VERSION = 2
FOLDER = "archive/manifests"
_FILES_AT_ONCE = 5000  # Spark gets the files of one read by name


class TooNew(JobError):
    """What was found was written by a newer Headrace; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Part:
    """A partition of a table: a topic's rows of a day. `checksum` is the exclusive or of its rows' hashes, in hex."""

    topic: str
    rows: int
    checksum: str
    files: tuple[Entry, ...]

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class Shard:
    """Which offsets of a shard were found in this day's journal. `voids` of them have no row: they were cancelled, or
    close a hole. From `begin` on none should be lacking; `missing` were found nowhere."""

    topic: str
    topic_uid: str
    shard: int
    begin: int
    ranges: tuple[Range, ...]
    voids: int = 0
    missing: tuple[Range, ...] = ()

    @property
    def key(self) -> str:
        """The partition key of the shard in the log."""
        return f"{self.topic}:{self.topic_uid}/{self.shard}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of one day. `until_hour` is 24 when all of it is archived; `input` lists the journal objects it was
    made of; `retired` are files that are no longer in it, with the time (ms) of that; `written_ms` is when the journal
    was read, which is set before the end of the day as long as late data may come."""

    day: str
    until_hour: int
    input: str
    tables: dict[str, tuple[Part, ...]]
    shards: tuple[Shard, ...]
    damaged: tuple[str, ...] = ()
    bodies_missing: tuple[str, ...] = ()
    retired: tuple[tuple[str, int], ...] = ()
    v: int = VERSION
    written_ms: int = 0

    @property
    def known_until(self) -> datetime:
        """Up to when it has what came: to the end of its hours, or to when its journal was read, if that is earlier."""
        begin = datetime.fromisoformat(self.day).replace(tzinfo=UTC)
        end = begin + timedelta(hours=self.until_hour)
        return min(end, datetime.fromtimestamp(self.written_ms / 1000, UTC)) if self.written_ms else end

    @property
    def is_closed(self) -> bool:
        """Was its journal read when the day was over?"""
        return self.known_until == datetime.fromisoformat(self.day).replace(tzinfo=UTC) + timedelta(days=1)

    @property
    def complete(self) -> bool:
        """Everything that was written that day is in it."""
        return not self.damaged and not self.bodies_missing and not any(s.missing for s in self.shards)

    def part(self, table: str, topic: str) -> Part | None:
        """A partition; None where it has no rows."""
        return next((part for part in self.tables.get(table, ()) if part.topic == topic), None)

    def files(self, table: str) -> Iterator[Entry]:
        """All files of a table."""
        for part in self.tables.get(table, ()):
            yield from part.files

    def with_part(self, table: str, part: Part) -> Manifest:
        """The same with one partition replaced."""
        parts = tuple(part if p.topic == part.topic else p for p in self.tables[table])
        return replace(self, tables={**self.tables, table: parts})


def name_of(day: str) -> str:
    return f"{FOLDER}/{day}.json"


def load(bucket: Bucket, day: str) -> Manifest | None:
    """A day's manifest. Raises TooNew, Unreadable."""
    try:
        text = bucket.read(name_of(day))
        return manifest_of(text) if text else None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Unreadable(
            f"{name_of(day)} can't be read: put its former version in its place, or, if the journal of that day is "
            f"whole, delete it and run the archive with --window {day}."
        ) from error


def days(bucket: Bucket, first: date | None = None, last: date | None = None) -> list[str]:
    """The days from `first` to `last` that have a manifest, in order."""
    names = sorted(entry.name.rpartition("/")[2].removesuffix(".json") for entry in bucket.entries(FOLDER))
    return [
        day
        for day in names
        if len(day) == 10
        and (not first or day >= first.isoformat())
        and (not last or day <= last.isoformat())
    ]


def load_all(bucket: Bucket, first: date | None = None, last: date | None = None) -> list[Manifest]:
    """The manifests of days from `first` to `last`, in order. Raises TooNew, Unreadable."""
    return [each for day in days(bucket, first, last) if (each := load(bucket, day))]


def has_topic(manifests: Iterable[Manifest], topic: str) -> bool:
    """Is anything of the topic in these days?"""
    parts = (part for manifest in manifests for parts in manifest.tables.values() for part in parts)
    return any(part.topic == topic for part in parts)


def is_small(manifests: Iterable[Manifest]) -> bool:
    """Is there little to read of these days?"""
    parts = (part for manifest in manifests for parts in manifest.tables.values() for part in parts)
    return sum(part.bytes for part in parts) < session.SMALL_BYTES


def save(bucket: Bucket, manifest: Manifest) -> None:
    bucket.write(name_of(manifest.day), json.dumps(asdict(manifest), separators=(",", ":")))


def manifest_of(text: str) -> Manifest:
    """The manifest in a text. Raises TooNew."""
    fields: dict[str, Any] = json.loads(text)
    if fields["v"] > VERSION:
        raise TooNew(f"The manifest of {fields['day']} has version {fields['v']}: update the jobs.")
    tables = {
        name: tuple(
            Part(p["topic"], p["rows"], p["checksum"], tuple(Entry(**file) for file in p["files"]))
            for p in parts
        )
        for name, parts in fields.pop("tables").items()
    }
    shards = tuple(
        Shard(**{**s, "ranges": _ranges(s["ranges"]), "missing": _ranges(s["missing"])})
        for s in fields.pop("shards")
    )
    retired = tuple((name, at_ms) for name, at_ms in fields.pop("retired"))
    damaged, bodies = tuple(fields.pop("damaged")), tuple(fields.pop("bodies_missing"))
    return Manifest(
        **fields, tables=tables, shards=shards, retired=retired, damaged=damaged, bodies_missing=bodies
    )


def _ranges(pairs: Iterable[Sequence[int]]) -> tuple[Range, ...]:
    return tuple((first, last) for first, last in pairs)


def table(
    spark: SparkSession,
    bucket: Bucket,
    name: str,
    manifests: Iterable[Manifest],
    topics: Collection[str] | None = None,
) -> DataFrame:
    """A table's rows as these manifests name them, with the columns `day` and `topic`: all topics, or these.

    table(spark, bucket, MESSAGES, load_all(bucket, first, last), ["orders"])
    """
    files = [
        bucket.uri(file.name)
        for manifest in manifests
        for part in manifest.tables.get(name, ())
        if topics is None or part.topic in topics
        for file in part.files
    ]
    return files_of(spark, bucket, name, files)


def files_of(spark: SparkSession, bucket: Bucket, name: str, uris: Sequence[str]) -> DataFrame:
    """The rows of some files of a table."""
    schema = with_day(name)
    if not uris:
        return empty_table(spark, schema)
    reader = spark.read.schema(schema).option("basePath", bucket.uri(f"archive/{name}"))
    rows = reader.parquet(*uris[:_FILES_AT_ONCE])
    for start in range(_FILES_AT_ONCE, len(uris), _FILES_AT_ONCE):
        rows = rows.unionAll(reader.parquet(*uris[start : start + _FILES_AT_ONCE]))
    return rows.select(*schema.names)  # Spark puts what folders tell behind the rest
