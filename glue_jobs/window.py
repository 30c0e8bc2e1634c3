"""One day of the journal, or its first hours, into the archive."""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from . import backfill, lines, manifest, proof, publish
from .bucket import Bucket, Entry
from .manifest import Manifest, Part, Shard, TooNew
from .ranges import Ranges, merged, pieces, size, without
from .schemas import DELIVERIES, JOURNAL, JOURNAL_VERSION, MESSAGES
from .telling import progress

_BROKEN = (
    "EOFException",
    "ZipException",
    "incorrect header",
    "invalid block",
    "incorrect data",
    "invalid stored",
)
_IGNORE = "spark.sql.files.ignoreCorruptFiles"
_HOUR_MS = 3_600_000


class Shrunk(Exception):
    """The journal has less than was archived of it before; the archive stays as it is."""


@dataclass(frozen=True, slots=True)
class Window:
    """A day up to an hour (24: all of it)."""

    day: date
    until_hour: int = 24

    @property
    def name(self) -> str:
        return self.day.isoformat()

    @property
    def end(self) -> datetime:
        return datetime(self.day.year, self.day.month, self.day.day, tzinfo=UTC) + timedelta(
            hours=self.until_hour
        )

    @property
    def hours(self) -> list[str]:
        """The folders of its journal."""
        return [f"day={self.name}/hour={hour:02}" for hour in range(self.until_hour)]

    @property
    def beside(self) -> list[str]:
        """The hours before and after it: by clocks that differ, neighbours may lie there."""
        begin = datetime(self.day.year, self.day.month, self.day.day, tzinfo=UTC)
        return [f"day={at:%Y-%m-%d}/hour={at:%H}" for at in (begin - timedelta(hours=1), self.end)]


@dataclass(frozen=True, slots=True)
class Settings:
    """`log_table`: where missing offsets are looked for (None: nowhere). `rows_per_file`: about the most."""

    log_table: str | None
    region: str
    rows_per_file: int
    grace_ms: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class Scan:
    """What a window's journal has of a table. `rows` by topic are those that the archive must have."""

    ranges: Mapping[str, Ranges] = field(default_factory=dict)
    places: Mapping[str, tuple[str, str, int]] = field(default_factory=dict)
    voids: Mapping[str, int] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a window. `touched` are other days whose journal was added to."""

    manifest: Manifest
    files: int
    backfilled: int = 0
    without_id: int = 0
    touched: tuple[str, ...] = ()


def inputs(bucket: Bucket, window: Window) -> tuple[list[Entry], str]:
    """The journal objects of a window, and a text that changes with any of them."""
    found = [
        entry
        for table in (MESSAGES, DELIVERIES)
        for entry in bucket.list(f"journal/{table}/day={window.name}")
        if entry.name.endswith(".gz") and any(f"/{hour}/" in entry.name for hour in window.hours)
    ]
    told = "".join(f"{entry.name} {entry.size}\n" for entry in found)
    return found, f"{len(found)} {hashlib.sha256(told.encode()).hexdigest()}"


def tidy(bucket: Bucket, day: Manifest, settings: Settings) -> None:
    """What follows the manifest, for a run that was stopped before: the proof, and what may go."""
    proved = proof.load(bucket)
    if (new := proved.with_day(day, bool(settings.log_table))) != proved:
        proof.save(bucket, new)
    publish.sweep(bucket, day, settings.grace_ms, settings.now_ms)


def archive(spark: SparkSession, bucket: Bucket, window: Window, settings: Settings) -> Result:
    """Bring a window into the archive. Raises TooNew, Shrunk or Mismatch: then nothing was published."""
    work = _Work(spark, bucket, window, settings)
    spark.conf.set(_IGNORE, "false")
    try:
        return work.run()
    finally:
        spark.conf.set(_IGNORE, "false")
        spark.catalog.clearCache()


class _Work:
    def __init__(self, spark: SparkSession, bucket: Bucket, window: Window, settings: Settings) -> None:
        self._spark, self._bucket, self._window, self._settings = spark, bucket, window, settings
        self._old = manifest.load(bucket, window.name)
        self._proved = proof.load(bucket)
        self._damaged: set[str] = set()

    def run(self) -> Result:
        entries, digest = inputs(self._bucket, self._window)
        scan, gaps, begins = self._look(entries)
        fetched, days = self._backfill(scan, gaps)
        if fetched:
            progress(f"{self._window.name}: {fetched} offsets came from DynamoDB")
            entries, digest = inputs(self._bucket, self._window)
            scan, gaps, begins = self._look(entries)
        self._refuse_less(scan)
        bodies_missing = self._write_messages(scan)
        parts = {MESSAGES: self._checked(MESSAGES, scan.rows)}
        self._write_deliveries(scan, entries)
        parts[DELIVERIES] = self._checked(DELIVERIES, None)
        without_id = self._without_id()
        new = Manifest(
            day=self._window.name,
            until_hour=self._window.until_hour,
            input=digest,
            tables={table: self._publish(table, found) for table, found in parts.items()},
            shards=_shards(scan, begins, gaps),
            damaged=tuple(sorted(self._damaged)),
            bodies_missing=bodies_missing,
        )
        return self._switch(new, fetched, without_id, days)

    def _switch(self, new: Manifest, fetched: int, without_id: int, days: set[str]) -> Result:
        now_ms = self._settings.now_ms
        new = publish.switch(self._bucket, self._old, new, now_ms)
        tidy(self._bucket, new, self._settings)
        files = sum(len(part.files) for parts in new.tables.values() for part in parts)
        return Result(new, files, fetched, without_id, tuple(sorted(days - {self._window.name})))

    # What there is

    def _look(self, entries: Sequence[Entry]) -> tuple[Scan, dict[str, Ranges], dict[str, int]]:
        """The messages that the journal has, the gaps, and from where on each shard should be whole."""
        self._damaged |= {entry.name for entry in entries if not entry.size}
        scan = self._reading(entries, lambda: self._scan(self._window.hours))
        begins = {
            key: proof.begin(key, ranges, self._proved, self._old) for key, ranges in scan.ranges.items()
        }
        gaps = proof.gaps(scan.ranges, begins, self._proved, self._old)
        if gaps:
            beside = self._reading(entries, lambda: self._scan(self._window.beside)).ranges
            gaps = {key: left for key, r in gaps.items() if (left := without(r, beside.get(key, ())))}
        return scan, gaps, begins

    def _scan(self, hours: Sequence[str]) -> Scan:
        found = self._lines(MESSAGES, hours)
        if found is None:
            return Scan()
        covered = lines.coverage(found).persist()
        totals = (
            covered.groupBy(*lines.SHARD)
            .agg(
                F.expr("sum(bit_count(bits))").alias("offsets"),
                F.expr("sum(bit_count(voids))").alias("voids"),
                F.max("v").alias("v"),
                F.max("elsewhere").alias("elsewhere"),
                F.expr("count_if(word is null)").alias("unreadable"),
            )
            .collect()
        )
        if max((row.v for row in totals if row.v), default=0) > JOURNAL_VERSION:
            raise TooNew(
                f"The journal of {self._window.name} was written by a newer Headrace: update the jobs."
            )
        if any(row.topic is None or row.unreadable for row in totals):
            self._damaged |= self._unreadable(found)
        whole = covered.where(
            "topic is not null and topic_uid is not null and shard is not null and word is not null"
        )
        ranges: dict[str, list[tuple[int, int]]] = {}
        for row in lines.ranges(whole).collect():
            ranges.setdefault(_key(row), []).append((row.first, row.last))
        covered.unpersist()
        rows: dict[str, int] = {}
        named = [row for row in totals if row.topic is not None and _key(row) in ranges]
        for row in named:
            rows[row.topic] = rows.get(row.topic, 0) + row.offsets - row.voids
        return Scan(
            {key: merged(found) for key, found in ranges.items()},
            {_key(row): (row.topic, row.topic_uid, row.shard) for row in named},
            {_key(row): row.voids for row in named},
            {topic: count for topic, count in rows.items() if count},
            any(row.elsewhere for row in named),
        )

    def _lines(self, table: str, hours: Sequence[str]) -> DataFrame | None:
        home = f"journal/{table}"
        known = {
            f"{day}/{hour}"
            for day in {hour.partition("/")[0] for hour in hours}
            for hour in self._bucket.folders(f"{home}/{day}")
        }
        there = [self._bucket.uri(f"{home}/{hour}") for hour in hours if hour in known]
        if not there:
            return None
        options = {"pathGlobFilter": "*.gz", "recursiveFileLookup": "true"}
        return self._spark.read.schema(JOURNAL[table]).options(**options).json(there)

    def _reading(self, entries: Sequence[Entry], read: Callable[[], Any]) -> Any:
        """Read; where objects are broken, find out which, and read what can be read."""
        try:
            return read()
        except Exception as error:  # Spark tells of a broken object in many ways
            if not any(sign in str(error) for sign in _BROKEN):
                raise
        self._damaged |= self._broken(entries)
        progress(f"{self._window.name}: {len(self._damaged)} journal objects are damaged")
        self._spark.catalog.clearCache()  # what was kept would be read as before
        self._spark.conf.set(_IGNORE, "true")
        return read()

    def _broken(self, entries: Sequence[Entry]) -> set[str]:
        uris = [self._bucket.uri(entry.name) for entry in entries if entry.size]
        files = self._spark.read.format("binaryFile").load(uris).select("path", "content")
        found = (
            files.rdd.filter(lambda row: not _is_whole(bytes(row.content)))
            .map(lambda row: row.path)
            .collect()
        )
        return {self._name(path) for path in found}

    def _unreadable(self, found: DataFrame) -> set[str]:
        broken = found.where("topic is null or topic_uid is null or shard is null or offset is null")
        return {self._name(row[0]) for row in broken.select(F.input_file_name()).distinct().collect()}

    def _name(self, uri: str) -> str:
        return uri.removeprefix(self._bucket.uri(""))

    # What is lacking

    def _backfill(self, scan: Scan, gaps: Mapping[str, Ranges]) -> tuple[int, set[str]]:
        """Fetch what is missing into the journal; how many offsets came, and of which days."""
        if not self._settings.log_table:
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
            self._spark, self._settings.log_table, self._settings.region, wanted
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

    # Writing

    def _write_messages(self, scan: Scan) -> tuple[str, ...]:
        """Write the rows aside; the names of bodies that are not there."""
        found = self._lines(MESSAGES, self._window.hours)
        if found is None:
            found = self._spark.createDataFrame([], JOURNAL[MESSAGES])
        found, missing = lines.readable(found), ()
        if scan.elsewhere:
            files, missing = self._bodies(found)
            found = lines.with_bodies(found, files)
        else:
            found = lines.with_content(found)
        publish.write_aside(
            self._bucket, MESSAGES, self._window.name, lines.messages(found, self._split(scan.rows))
        )
        return missing

    def _bodies(self, found: DataFrame) -> tuple[DataFrame, tuple[str, ...]]:
        """Name and bytes of the bodies that lie elsewhere, and the names of those that are gone."""
        names = [
            row[0] for row in found.where("body_blob is not null").select("body_blob").distinct().collect()
        ]
        there = {name for name in names if self._bucket.exists(name)}
        missing = tuple(sorted(set(names) - there))
        if not there:
            return self._spark.createDataFrame([], "name string, bytes binary"), missing
        files = self._spark.read.format("binaryFile").load([self._bucket.uri(name) for name in sorted(there)])
        start = len(self._bucket.uri("")) + 1
        return files.select(
            F.expr(f"substring(path, {start})").alias("name"), F.col("content").alias("bytes")
        ), missing

    def _write_deliveries(self, scan: Scan, entries: Sequence[Entry]) -> None:
        found = self._lines(DELIVERIES, self._window.hours)
        reach: dict[str, int] = {}
        rows: dict[str, int] = {}
        if found is not None:
            seen = self._reading(entries, lambda: self._reach(found))
            for row in seen:
                reach[_key(row)] = row.first
                rows[row.topic] = rows.get(row.topic, 0) + row["count"]
        attempts = (
            self._spark.createDataFrame([], JOURNAL[DELIVERIES]) if found is None else lines.readable(found)
        )
        publish.write_aside(
            self._bucket,
            DELIVERIES,
            self._window.name,
            lines.deliveries(attempts, self._ids(reach), self._split(rows)),
        )

    def _reach(self, found: DataFrame) -> list[Any]:
        """By shard: the first offset that was tried, and how many attempts there are (or more)."""
        rows = (
            found.groupBy(*lines.SHARD)
            .agg(F.min("offset").alias("first"), F.count("*").alias("count"), F.max("v").alias("v"))
            .collect()
        )
        if max((row.v for row in rows if row.v), default=0) > JOURNAL_VERSION:
            raise TooNew(
                f"The journal of {self._window.name} was written by a newer Headrace: update the jobs."
            )
        if any(None in (row.topic, row.topic_uid, row.shard, row.first) for row in rows):
            self._damaged |= self._unreadable(found)
        return [row for row in rows if None not in (row.topic, row.topic_uid, row.shard, row.first)]

    def _ids(self, reach: Mapping[str, int]) -> DataFrame:
        """Messages from which the attempts' ids can be told: this window's, and other days' as far back as needed."""
        here = publish.aside(self._spark, self._bucket, MESSAGES, self._window.name)
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

    def _checked(self, table: str, rows: Mapping[str, int] | None) -> dict[str, Part]:
        """What lies aside, read again: as many rows as the journal has offsets."""
        found = publish.read_again(self._spark, self._bucket, table, self._window.name)
        written = {topic: part.rows for topic, part in found.items()}
        if rows is not None and written != rows:
            raise publish.Mismatch(f"{table} of {self._window.name}: {rows} should be there, {written} are")
        return found

    def _without_id(self) -> int:
        return (
            publish.aside(self._spark, self._bucket, DELIVERIES, self._window.name)
            .where("id is null")
            .count()
        )

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


def _shards(scan: Scan, begins: Mapping[str, int], gaps: Mapping[str, Ranges]) -> tuple[Shard, ...]:
    return tuple(
        Shard(*scan.places[key], begins[key], ranges, scan.voids[key], gaps.get(key, ()))
        for key, ranges in sorted(scan.ranges.items())
    )


def _is_whole(content: bytes) -> bool:
    try:
        gzip.decompress(content)
    except (EOFError, OSError, zlib.error):
        return False
    return True
