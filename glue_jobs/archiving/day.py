"""One day of the journal, or its first hours, into the archive."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from glue_jobs.archiving import backfill, catalog, completeness, publish, transforms
from glue_jobs.archiving.journal import Journal, Window
from glue_jobs.common import manifest
from glue_jobs.common.bucket import Bucket, Entry
from glue_jobs.common.failures import JobError
from glue_jobs.common.manifest import Manifest, Part, Shard
from glue_jobs.common.output import progress
from glue_jobs.common.ranges import Range, Ranges, merged, pieces, size, without
from glue_jobs.common.schemas import DELIVERIES, JOURNAL_VERSION, MESSAGES
from glue_jobs.common.session import nothing

_TRACE = ("group_uid", "topic_uid", "shard", "trace", "offset")


class Shrunk(JobError):
    """The journal has less than was archived of it before; the archive stays as it is."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`prefix`: of the tables where what is missing is looked for (None: nowhere). `rows_per_file`: about the most."""

    prefix: str | None
    region: str
    rows_per_file: int
    grace_ms: int
    now_ms: int


@dataclass(slots=True)
class Topic:
    """The messages of a topic: how many rows, and the exclusive or of their hashes."""

    rows: int = 0
    checksum: int = 0


@dataclass(frozen=True, slots=True)
class Scan:
    """What a window has of messages, by shard and by topic. `offsets` is how many all its ranges have."""

    ranges: Mapping[str, Ranges]
    places: Mapping[str, tuple[str, str, int]]
    voids: Mapping[str, int]
    topics: Mapping[str, Topic]

    @property
    def offsets(self) -> int:
        return sum(map(size, self.ranges.values()))

    @property
    def rows(self) -> int:
        """Those and voids: as many as offsets, if each has one."""
        return sum(topic.rows for topic in self.topics.values()) + sum(self.voids.values())


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a window. `touched` are other days whose journal was added to."""

    manifest: Manifest
    files: int
    backfilled: int = 0
    backfilled_traces: int = 0
    without_id: int = 0
    touched: tuple[str, ...] = ()


def tidy(bucket: Bucket, day: Manifest, settings: Settings) -> None:
    """What follows the manifest, for a run that was stopped before: the proof, and what may go."""
    catalog.show(bucket, day)
    proved = completeness.load(bucket)
    if (new := proved.with_day(day, bool(settings.prefix))) != proved:
        completeness.save(bucket, new)
    publish.sweep(bucket, day, settings.grace_ms, settings.now_ms)


def archive(spark: SparkSession, bucket: Bucket, window: Window, settings: Settings) -> Result:
    """Bring a window into the archive. Raises TooNew, Shrunk or Mismatch: then nothing was published."""
    return _Work(spark, bucket, window, settings).run()


class _Work:
    def __init__(self, spark: SparkSession, bucket: Bucket, window: Window, settings: Settings) -> None:
        self._spark, self._bucket, self._window, self._settings = spark, bucket, window, settings
        self._old = manifest.load(bucket, window.name)
        self._proved = completeness.load(bucket)
        self._journal = Journal(spark, bucket, window)
        self._backfilled_traces = 0

    def run(self) -> Result:
        scan, gaps, begins, bodies_missing = self._look()
        fetched, days = self._backfill(scan, gaps)
        if fetched:
            progress(f"{self._window.name}: {fetched} offsets came from DynamoDB")
            self._journal = Journal(self._spark, self._bucket, self._window)
            scan, gaps, begins, bodies_missing = self._look()
        self._refuse_less(scan)
        deliveries, without_id = self._write_deliveries()
        parts = {MESSAGES: self._messages(scan), DELIVERIES: deliveries}
        new = Manifest(
            day=self._window.name,
            until_hour=self._window.until_hour,
            input=self._journal.digest,
            tables={table: self._publish(table, found) for table, found in parts.items()},
            shards=_shards(scan, begins, gaps),
            damaged=tuple(sorted(self._journal.damaged)),
            bodies_missing=bodies_missing,
        )
        return self._switch(new, fetched, without_id, days)

    def _switch(self, new: Manifest, fetched: int, without_id: int, days: set[str]) -> Result:
        now_ms = self._settings.now_ms
        new = publish.switch(self._bucket, self._old, new, now_ms)
        tidy(self._bucket, new, self._settings)
        files = sum(len(part.files) for parts in new.tables.values() for part in parts)
        touched = tuple(sorted(days - {self._window.name}))
        return Result(new, files, fetched, self._backfilled_traces, without_id, touched)

    # Messages

    def _write_messages(self) -> tuple[int, tuple[str, ...]]:
        """Write the messages aside; how many offsets, and the names of bodies that are not there."""
        found, told = self._journal.reading(self._write_lines)
        self._journal.check(found, told["newest"], told["unreadable"])
        return told["offsets"], self._write_bodies()

    def _write_lines(self) -> tuple[DataFrame, Mapping[str, Any]]:
        found, read, made = self._journal.lines(MESSAGES), Observation(), Observation()
        unreadable = F.count_if(F.expr(f"not ({transforms.READABLE})"))
        seen = found.observe(read, F.max("v").alias("newest"), unreadable.alias("unreadable"))
        large = self._journal.large(MESSAGES, self._settings.rows_per_file)
        rows = transforms.messages(transforms.readable(seen), self._split(large))
        counted = rows.observe(made, F.count("*").alias("offsets"))
        publish.write_aside(self._bucket, MESSAGES, self._window.name, counted, transforms.KIND)
        return found, {**read.get, **made.get}

    def _write_bodies(self) -> tuple[str, ...]:
        """Write the rows whose bodies lie elsewhere; the names of those that are gone. A body that went with its
        message's retention is in the archive already, where the day is archived once more."""
        if not self._files_aside(transforms.ELSEWHERE):
            return ()
        rows = self._aside().where(F.col("kind") == transforms.ELSEWHERE)
        names = {row.name for row in rows.selectExpr(transforms.NAME).collect()}
        there = sorted(name for name in names if self._bucket.exists(name))
        before = [self._old] if self._old and len(there) < len(names) else []
        archived = manifest.table(self._spark, self._bucket, MESSAGES, before)
        whole = transforms.with_bodies(rows, self._bodies(there), archived)
        publish.write_aside(self._bucket, MESSAGES, self._window.name, whole, transforms.KIND, mode="append")
        gone = names - {*there}
        if before:
            gone -= {row.name for row in transforms.archived_bodies(rows, archived).collect()}
        return tuple(sorted(gone))

    def _bodies(self, names: Sequence[str]) -> DataFrame:
        if not names:
            return nothing(self._spark, StructType().add("name", "string").add("bytes", "binary"))
        files = self._spark.read.format("binaryFile").load([self._bucket.uri(name) for name in names])
        start = len(self._bucket.uri("")) + 1
        return files.select(
            F.expr(f"substring(path, {start})").alias("name"), F.col("content").alias("bytes")
        )

    def _aside(self) -> DataFrame:
        return publish.aside(self._spark, self._bucket, MESSAGES, self._window.name, transforms.KIND)

    def _messages(self, scan: Scan) -> dict[str, Part]:
        files = self._files_aside(transforms.ROW)
        return {
            topic: publish.part(topic, found.rows, found.checksum, files[topic])
            for topic, found in scan.topics.items()
            if found.rows
        }

    def _files_aside(self, kind: str) -> dict[str, tuple[Entry, ...]]:
        return publish.files_aside(self._bucket, MESSAGES, self._window.name, f"/kind={kind}/")

    # What there is

    def _look(self) -> tuple[Scan, dict[str, Ranges], dict[str, int], tuple[str, ...]]:
        """The messages that the journal has and that are written now, the gaps, from where on each shard should be
        whole, and the names of bodies that are not there. Raises TooNew, Mismatch."""
        written, bodies_missing = self._write_messages()
        scan = _scan(self._aside().where(F.col("kind") != transforms.ELSEWHERE))
        if not written == scan.offsets == scan.rows:
            raise publish.Mismatch(
                f"{self._window.name}: {written} rows were written, {scan.rows} with {scan.offsets} offsets are there"
            )
        begins = {
            key: completeness.begin(key, ranges, self._proved, self._old)
            for key, ranges in scan.ranges.items()
        }
        gaps = completeness.gaps(scan.ranges, begins, self._proved, self._old)
        if gaps:
            beside = self._journal.reading(self._beside)
            gaps = {key: left for key, r in gaps.items() if (left := without(r, beside.get(key, ())))}
        return scan, gaps, begins, bodies_missing

    def _beside(self) -> Mapping[str, Ranges]:
        """The offsets that the hours before and after have."""
        found = transforms.readable(self._journal.lines(MESSAGES, self._window.beside))
        return _scan(transforms.messages(found.where(F.col("v") <= JOURNAL_VERSION), {})).ranges

    # What is lacking

    def _backfill(self, scan: Scan, gaps: Mapping[str, Ranges]) -> tuple[int, set[str]]:
        """Fetch what is missing into the journal; how many offsets came, and of which days."""
        if not self._settings.prefix:
            return 0, set()
        wanted = [
            (key, first, last, 0)
            for key, ranges in gaps.items()
            for first, last in pieces(ranges, backfill.PIECE)
        ]
        end_ms = min(int(self._window.end.timestamp() * 1000) - 1, self._settings.now_ms)
        for key in {*self._proved.ranges, *scan.ranges}:
            known = merged((*self._proved.ranges.get(key, ()), *scan.ranges.get(key, ())))
            wanted.append((key, known[-1][1] + 1, backfill.ENDLESS, end_ms))
        if not wanted:
            return 0, set()
        found = backfill.fetched(
            self._spark, f"{self._settings.prefix}-log", self._settings.region, wanted
        ).persist()
        counts = {row.day: row["count"] for row in found.groupBy("day").count().collect()}
        if counts:
            target = self._bucket.uri(f"journal/{MESSAGES}")
            found.coalesce(8).write.mode("append").partitionBy("day", "hour").option(
                "compression", "gzip"
            ).text(target)
        found.unpersist()
        return sum(counts.values()), set(counts)

    def _refuse_less(self, scan: Scan) -> None:
        lacking = {
            shard.key: left
            for shard in (self._old.shards if self._old else ())
            if (left := without(shard.ranges, scan.ranges.get(shard.key, ())))
        }
        if lacking:
            raise Shrunk(
                f"The journal of {self._window.name} has lost {sum(map(size, lacking.values()))} messages that are in "
                "the archive; it stays as it is."
            )

    # Deliveries

    def _write_deliveries(self) -> tuple[dict[str, Part], int]:
        """The deliveries' partitions that lie aside, and how many attempts are without an id."""
        reach = self._journal.reading(self._reach)
        if not reach:
            return {}, 0
        if self._settings.prefix and (count := self._backfill_attempts(reach, self._settings.prefix)):
            progress(f"{self._window.name}: {count} traces came from DynamoDB")
            damaged, self._backfilled_traces = self._journal.damaged, count
            self._journal = Journal(self._spark, self._bucket, self._window)
            self._journal.damaged |= damaged
            reach = self._journal.reading(self._reach)
        counts: Counter[str] = Counter()
        first: dict[str, int] = {}
        for row in reach:
            counts[row.topic] += row["count"]
            first[_key(row)] = min(row.first, first.get(_key(row), row.first))
        attempts = transforms.readable(self._journal.lines(DELIVERIES))
        ids, without_id = self._ids(first), Observation()
        found = transforms.deliveries(attempts, ids, self._split(counts)).observe(
            without_id, F.count_if(F.col("id").isNull()).alias("rows")
        )
        publish.write_aside(self._bucket, DELIVERIES, self._window.name, found)
        parts = publish.read_again(self._spark, self._bucket, DELIVERIES, self._window.name)
        return parts, without_id.get["rows"]

    def _backfill_attempts(self, reach: Sequence[Any], prefix: str) -> int:
        """Fetch the traces that the table has of the window, and the journal has not, into the journal; how many."""
        traces = [
            (f"{row.group_uid}/{row.topic_uid}/{row.shard}", row.first) for row in reach if row.group_uid
        ]
        begin_ms = int(self._window.begin.timestamp() * 1000)
        end_ms = min(int(self._window.end.timestamp() * 1000), self._settings.now_ms)
        there = backfill.fetched_attempts(
            self._spark, f"{prefix}-traces", self._settings.region, traces, begin_ms, end_ms
        )
        known = transforms.readable(self._journal.lines(DELIVERIES)).select(*_TRACE).distinct()
        lost = there.join(known, [*_TRACE], "left_anti").persist()
        count = lost.count()
        if count:
            lines = lost.select(F.explode("lines").alias("each")).select("each.*")
            target = self._bucket.uri(f"journal/{DELIVERIES}")
            lines.coalesce(8).write.mode("append").partitionBy("day", "hour").option(
                "compression", "gzip"
            ).text(target)
        lost.unpersist()
        return count

    def _reach(self) -> list[Any]:
        """By shard and group: the first offset that was tried, and how many attempts there are (or more)."""
        found = self._journal.lines(DELIVERIES)
        rows = (
            found.groupBy(*transforms.SHARD, "group_uid")
            .agg(F.min("offset").alias("first"), F.count("*").alias("count"), F.max("v").alias("v"))
            .collect()
        )
        whole = [row for row in rows if None not in (row.topic, row.topic_uid, row.shard, row.first)]
        self._journal.check(found, max((row.v for row in rows if row.v), default=0), len(rows) - len(whole))
        return whole

    def _ids(self, reach: Mapping[str, int]) -> DataFrame:
        """Messages from which the attempts' ids can be told: this window's, and other days' as far back as needed."""
        here = self._aside().where(F.col("kind") == transforms.ROW).drop("kind", "of")
        wanted, others = dict(reach), []
        for other in reversed(manifest.load_all(self._bucket)):
            if other.day == self._window.name:
                continue
            if any(shard.key in wanted and shard.ranges for shard in other.shards):
                others.append(other)
            for shard in other.shards:
                if shard.ranges and shard.ranges[0][0] <= wanted.get(shard.key, -1):
                    del wanted[shard.key]
            if not wanted:
                break
        return here.unionByName(manifest.table(self._spark, self._bucket, MESSAGES, others))

    def _split(self, rows: Mapping[str, int]) -> dict[str, int]:
        most = self._settings.rows_per_file
        return {topic: math.ceil(count / most) for topic, count in rows.items() if count > most}

    def _publish(self, table: str, found: Mapping[str, Part]) -> tuple[Part, ...]:
        old = {part.topic: part for part in self._old.tables.get(table, ())} if self._old else {}
        for topic, part in old.items() if table == DELIVERIES else ():  # messages may be cancelled
            if topic not in found or found[topic].rows < part.rows:
                raise Shrunk(
                    f"{table} of {self._window.name} would lose rows of {topic}; the archive stays as it is."
                )
        return tuple(
            publish.publish(self._bucket, table, self._window.name, part, old.get(topic))
            for topic, part in sorted(found.items())
        )


def _key(row: Any) -> str:
    return f"{row.topic}:{row.topic_uid}/{row.shard}"


def _scan(rows: DataFrame) -> Scan:
    places: dict[str, tuple[str, str, int]] = {}
    ranges: defaultdict[str, list[Range]] = defaultdict(list)
    voids: Counter[str] = Counter()
    topics: defaultdict[str, Topic] = defaultdict(Topic)
    for row in transforms.coverage(rows).collect():
        key, topic = f"{row.topic}:{row.topic_uid}/{row.shard}", topics[row.topic]
        places[key] = (row.topic, row.topic_uid, row.shard)
        starts = (row.first + n * row.step for n in range(64) if row.bits >> n & 1)
        ranges[key] += [(start, start + row.step - 1) for start in starts]
        voids[key] += row.voids
        topic.rows, topic.checksum = topic.rows + row.rows, topic.checksum ^ row.checksum
    return Scan({key: merged(found) for key, found in ranges.items()}, places, voids, topics)


def _shards(scan: Scan, begins: Mapping[str, int], gaps: Mapping[str, Ranges]) -> tuple[Shard, ...]:
    return tuple(
        Shard(*scan.places[key], begins[key], ranges, scan.voids[key], gaps.get(key, ()))
        for key, ranges in sorted(scan.ranges.items())
    )
