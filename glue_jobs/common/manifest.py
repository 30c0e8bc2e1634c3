"""What is in the archive: one manifest a day, written last. Files that no manifest names are not there.

`archive/manifests/<day>.json`. A reader takes the files of the manifests and never sees half a partition, nor rows
twice, while a job is at work beside it: what a new manifest names no more stays for a while (`retired`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from glue_jobs.common import session
from glue_jobs.common.bucket import Bucket, Entry
from glue_jobs.common.failures import JobError, Unreadable
from glue_jobs.common.ranges import Range
from glue_jobs.common.schemas import with_day
from glue_jobs.common.session import empty_table

VERSION = 1
FOLDER = "archive/manifests"
_FILES_AT_ONCE = 5000  # Spark gets the files of one read by name


class TooNew(JobError):
    """What was found was written by a newer Headrace; the text says what to do."""


@dataclass(frozen=True, slots=True)
class File(Entry):
    """A file of a table: its rows are sorted, and are of topics from `first` to `last`."""

    first: str
    last: str


@dataclass(frozen=True, slots=True)
class Rows:
    """A topic's rows of a day: how many, and the exclusive or of their hashes, in hex."""

    count: int
    checksum: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table's rows of a day: in which files they are, and what each topic has."""

    files: tuple[File, ...] = ()
    topics: dict[str, Rows] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(each.count for each in self.topics.values())

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)

    def files_of(self, topics: Collection[str] | None) -> list[File]:
        """The files that may have rows of these topics (None: of any)."""
        return [
            file
            for file in self.files
            if topics is None or any(file.first <= topic <= file.last for topic in topics)
        ]


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
    tables: dict[str, Table]
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

    def table(self, name: str) -> Table:
        """A table; one without rows where the day has none."""
        return self.tables.get(name, Table())

    @property
    def topics(self) -> set[str]:
        """Of which it has rows."""
        return {topic for table in self.tables.values() for topic in table.topics}


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
    return any(topic in manifest.topics for manifest in manifests)


def is_small(manifests: Iterable[Manifest]) -> bool:
    """Is there little to read of these days?"""
    tables = (table for manifest in manifests for table in manifest.tables.values())
    return sum(table.bytes for table in tables) < session.SMALL_BYTES


def save(bucket: Bucket, manifest: Manifest) -> None:
    """Put the manifest. Files, topics and shards are lists without names in it: a day may have thousands."""
    tables = {
        name: {
            "files": [(file.name, file.size, file.first, file.last) for file in table.files],
            "topics": {topic: astuple(rows) for topic, rows in table.topics.items()},
        }
        for name, table in manifest.tables.items()
    }
    document = {
        **asdict(replace(manifest, tables={}, shards=())),
        "tables": tables,
        "shards": [astuple(shard) for shard in manifest.shards],
    }
    bucket.write(name_of(manifest.day), json.dumps(document, separators=(",", ":")))


def manifest_of(text: str) -> Manifest:
    """The manifest in a text. Raises TooNew."""
    fields: dict[str, Any] = json.loads(text)
    if fields["v"] > VERSION:
        raise TooNew(f"The manifest of {fields['day']} has version {fields['v']}: update the jobs.")
    tables = {
        name: Table(
            tuple(File(*file) for file in table["files"]),
            {topic: Rows(*rows) for topic, rows in table["topics"].items()},
        )
        for name, table in fields.pop("tables").items()
    }
    shards = tuple(
        Shard(topic, uid, number, begin, _ranges(ranges), voids, _ranges(missing))
        for topic, uid, number, begin, ranges, voids, missing in fields.pop("shards")
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
        bucket.uri(file.name) for manifest in manifests for file in manifest.table(name).files_of(topics)
    ]
    rows = files_of(spark, bucket, name, files)
    return rows if topics is None else rows.where(F.col("topic").isin([*topics]))


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
