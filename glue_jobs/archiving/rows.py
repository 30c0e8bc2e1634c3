"""A window's journal becomes rows. What is decided about them is in day.py."""

from __future__ import annotations

import gzip
import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby, islice
from typing import Any, TypeVar

from pyspark.sql import Column, DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from glue_jobs.archiving import backfill, publish, transforms
from glue_jobs.archiving.journal import Journal
from glue_jobs.archiving.scan import AttemptCount, Gap, Scan, Settings, Written, shard_key
from glue_jobs.archiving.window import Window
from glue_jobs.common import manifest
from glue_jobs.common.arguments import progress
from glue_jobs.common.bucket import Bucket, Entry
from glue_jobs.common.checksums import checksums, in_hex
from glue_jobs.common.manifest import File, Manifest, Rows, Table
from glue_jobs.common.ranges import Range, Ranges, merged
from glue_jobs.common.schemas import DELIVERIES, JOURNAL, JOURNAL_VERSION, MESSAGES, ORDER, TABLES

_TRACE = ("group_uid", "topic_uid", "shard", "trace", "offset")
_EDITION = StructType([JOURNAL[MESSAGES][name] for name in (*transforms.SHARD, "offset", "edition")])
_FETCHED = "day string, hour string, line string"
_TASKS = 64  # that ask DynamoDB
_LINES = 20_000  # of an object of the journal
_BODIES = 250  # large ones in a file: each has 200 KB or more

T = TypeVar("T")


class WindowRows:
    """Rows of one window, from the journal as it was when this was made, or when `look_again` was called, or later.
    `damaged_rows` says which rows of DynamoDB are unreadable, and why, as far as they were met; `misplaced` is how many
    lines of each other day were met, and brought to its journal."""

    def __init__(self, *, spark: SparkSession, bucket: Bucket, window: Window, settings: Settings) -> None:
        self._spark, self._bucket, self._window, self._settings = spark, bucket, window, settings
        self._journal = Journal(spark, bucket, window)
        self.damaged_rows: set[str] = set()
        self.misplaced: dict[str, int] = {}
        self._before = {table: self._files(table) for table in TABLES}

    @property
    def digest(self) -> str:
        """Identifies the journal's objects that were there then."""
        return self._journal.digest

    @property
    def damaged_objects(self) -> set[str]:
        """The names of unreadable objects, as far as they were met."""
        return self._journal.damaged_objects

    def look_again(self, tables: Iterable[str] = TABLES) -> None:
        """Lines were added to the journal of these tables: list its objects again."""
        self._journal.look_again(tables)

    # Messages

    def write_messages(self, old: Manifest | None) -> Written:
        """Write the messages where no list names them. A large body whose file is missing is taken from `old`, the
        archive of the day before this run. Raises TooNew."""
        self.discard()
        lines, counts = self._journal.read_despite_damage(self._write_lines)
        self._journal.check(lines, counts["newest"], counts["unreadable"])
        if counts["misplaced"]:
            self._bring_home(MESSAGES)
        bodies_missing: Sequence[str] = ()
        voids: list[Row] = []
        if counts[transforms.VOID] or counts[transforms.ELSEWHERE]:
            others = transforms.without_rows(self._own_lines(MESSAGES)).persist()
            void_rows = others.where(F.col("kind") == transforms.VOID)
            if counts[transforms.VOID]:
                voids = transforms.coverage(void_rows.withColumn("file", F.lit(""))).collect()
            if counts[transforms.ELSEWHERE]:
                bodies_missing = self._write_large(others.where(F.col("kind") == transforms.ELSEWHERE), old)
            others.unpersist()
        entries = self._new_files(MESSAGES)
        sums = transforms.coverage(self._read(MESSAGES, entries)).collect() if entries else []
        return Written(
            counts["offsets"], _scan(sums, voids), _table(entries, sums), tuple(sorted(bodies_missing))
        )

    def _write_lines(self) -> tuple[DataFrame, Mapping[str, Any]]:
        lines, line_stats, row_count = self._journal.lines(MESSAGES), Observation(), Observation()
        unreadable = F.count_if(F.expr(f"not ({transforms.READABLE})"))
        misplaced = self._misplaced(MESSAGES)
        observed_lines = lines.observe(
            line_stats,
            F.max("v").alias("newest"),
            unreadable.alias("unreadable"),
            F.count_if(misplaced).alias("misplaced"),
        )
        own_lines = transforms.readable_lines(observed_lines).where(~misplaced)
        rows = transforms.messages(own_lines, self._file_count(MESSAGES))
        kind = F.col("kind")
        kinds = [F.count_if(kind == each).alias(each) for each in (transforms.VOID, transforms.ELSEWHERE)]
        counted_rows = rows.observe(row_count, F.count("*").alias("offsets"), *kinds)
        self._write(MESSAGES, counted_rows.where(kind == transforms.ROW).drop("kind"))
        return lines, {**line_stats.get, **row_count.get}

    def _write_large(self, rows: DataFrame, old: Manifest | None) -> Sequence[str]:
        """Write the rows whose bodies are in files of their own. Returns the names of files that are missing. If the
        day was archived before, a body whose file has expired is taken from the archive."""
        named_rows = rows.selectExpr("*", transforms.NAME)
        names = sorted({row.name for row in named_rows.select("name").collect()})
        archived_rows = manifest.table(self._spark, self._bucket, MESSAGES, [old] if old else [])
        missing = Observation()
        read, tasks = self._bucket.reader(), math.ceil(len(names) / _BODIES)
        bodies = self._spark.createDataFrame(
            self._spark.sparkContext.parallelize(names, tasks).map(lambda name: (name, read(name))),
            "name string, bytes binary",
        )
        full_rows = transforms.with_bodies(named_rows, bodies, archived_rows).observe(
            missing, F.concat_ws("\n", F.collect_set(F.expr("if(body is null, name, null)"))).alias("names")
        )
        files = transforms.arranged(full_rows.select(*TABLES[MESSAGES].names), tasks, ORDER[MESSAGES])
        self._write(MESSAGES, files.sortWithinPartitions(*ORDER[MESSAGES]))
        return str(missing.get["names"]).split()

    def neighbour_ranges(self) -> Mapping[str, Ranges]:
        """The offsets that the hours before and after have."""
        return self._journal.read_despite_damage(self._read_neighbour_ranges)

    def _read_neighbour_ranges(self) -> Mapping[str, Ranges]:
        lines = transforms.readable_lines(self._journal.lines(MESSAGES, self._window.neighbour_hours))
        rows = transforms.messages(lines.where(F.col("v") <= JOURNAL_VERSION), 1)
        return _scan(transforms.coverage(rows.withColumn("file", F.lit(""))).collect(), ()).ranges

    # Files

    def _misplaced(self, table: str) -> Column:
        return transforms.of_another_day(table, self._window.day)

    def _own_lines(self, table: str) -> DataFrame:
        return transforms.readable_lines(self._journal.lines(table)).where(~self._misplaced(table))

    def _file_count(self, table: str) -> int:
        return max(1, math.ceil(self._journal.bytes_of(table) / self._settings.file_bytes))

    def _files(self, table: str) -> set[Entry]:
        entries = self._bucket.entries(publish.folder_of(table, self._window.name))
        return {entry for entry in entries if entry.name.endswith(".parquet")}

    def _new_files(self, table: str) -> set[Entry]:
        return self._files(table) - self._before[table]

    def discard(self) -> None:
        """Delete the files that were written, and what a killed run left: Spark would take its tasks for this run's."""
        for table in TABLES:
            self._bucket.delete(f"{publish.folder_of(table, self._window.name)}/_temporary")
            for entry in self._new_files(table):
                self._bucket.delete(entry.name)

    def _write(self, table: str, rows: DataFrame) -> None:
        """Write rows into the folder of their day: no manifest names the files yet."""
        rows.write.mode("append").parquet(self._bucket.uri(publish.folder_of(table, self._window.name)))

    def _read(self, table: str, entries: Iterable[Entry]) -> DataFrame:
        """The rows of files, with the name of each one's file."""
        uris = [self._bucket.uri(entry.name) for entry in entries]
        return self._spark.read.schema(TABLES[table]).parquet(*uris).selectExpr("*", transforms.FILE)

    # Deliveries

    def attempt_counts(self) -> Sequence[AttemptCount]:
        """The attempts that the journal holds. Raises TooNew."""
        if not self._journal.has(DELIVERIES):
            return []
        return self._journal.read_despite_damage(self._read_attempt_counts)

    def _read_attempt_counts(self) -> list[AttemptCount]:
        lines = self._journal.lines(DELIVERIES)
        misplaced = self._misplaced(DELIVERIES).alias("misplaced")
        stretch = F.expr(f"offset div {transforms.STRETCH} as stretch")
        rows = (
            lines.groupBy(*transforms.SHARD, "group_uid", misplaced, stretch)
            .agg(F.min("offset").alias("first"), F.max("v").alias("v"))
            .collect()
        )
        sound_rows = [row for row in rows if None not in (row.topic, row.topic_uid, row.shard, row.first)]
        self._journal.check(
            lines, max((row.v for row in rows if row.v), default=0), len(rows) - len(sound_rows)
        )
        if any(row.misplaced for row in sound_rows):
            self._bring_home(DELIVERIES)
        stretches: defaultdict[tuple[str, str, int, str | None], dict[int, int]] = defaultdict(dict)
        for row in sound_rows:
            if not row.misplaced:
                stretches[row.topic, row.topic_uid, row.shard, row.group_uid][row.stretch] = row.first
        return [
            AttemptCount(*place, min(first.values()), _offsets(first)) for place, first in stretches.items()
        ]

    def write_deliveries(
        self, own: Table, other_days: Sequence[Manifest], topics: Collection[str]
    ) -> tuple[Table, int]:
        """Write the attempts where no list names them, with message ids from this window's files and, for these
        topics, from other days. Returns the table, and how many attempts have no id."""
        own_ids = manifest.files_of(
            self._spark, self._bucket, MESSAGES, [self._bucket.uri(f.name) for f in own.files]
        )
        ids = own_ids.unionByName(manifest.table(self._spark, self._bucket, MESSAGES, other_days, topics))
        without_id = Observation()
        rows = transforms.deliveries(self._own_lines(DELIVERIES), ids, self._file_count(DELIVERIES)).observe(
            without_id, F.count_if(F.col("id").isNull()).alias("rows")
        )
        self._write(DELIVERIES, rows)
        entries = self._new_files(DELIVERIES)
        sums = checksums(self._read(DELIVERIES, entries), DELIVERIES, "file", "topic").collect()
        return _table(entries, sums), without_id.get["rows"]

    # What is lacking

    def fetch(self, gaps: Sequence[Gap]) -> dict[str, int]:
        """Copy missing offsets from DynamoDB into the journal. Returns how many came, by day."""
        table, options = backfill.table_of(self._settings, "log")
        rows = self._ask(gaps, lambda some: backfill.offsets(table, options, some))
        is_list = isinstance(rows, list)
        return self._add(MESSAGES, rows if is_list else self._spark.createDataFrame(rows, _FETCHED))

    def fetch_edits(self, gaps: Sequence[Gap]) -> dict[str, int]:
        """Copy those of these offsets whose rows were edited, and which the journal lacks in that edition. Returns how
        many came, by day."""
        table, options = backfill.table_of(self._settings, "log")
        if not (rows := self._ask(gaps, lambda some: backfill.edits(table, options, some))):
            return {}
        lines = self._spark.createDataFrame(rows, _FETCHED).withColumn("of", F.from_json("line", _EDITION))
        known_editions = self._journal.lines(MESSAGES).where("edition > 0").select(*_EDITION.names)
        new_lines = lines.select("*", "of.*").join(known_editions, _EDITION.names, "left_anti")
        return self._add(MESSAGES, new_lines.select("day", "hour", "line"))

    def fetch_attempts(self, attempt_counts: Sequence[AttemptCount], begin_ms: int, end_ms: int) -> int:
        """Copy the traces of a time that the journal lacks from DynamoDB into it. Returns how many came."""
        table, options = backfill.table_of(self._settings, "traces")
        trace_rows = self._ask(
            backfill.traces(attempt_counts),
            lambda some: backfill.attempts(table, options, some, begin_ms, end_ms),
        )
        if not trace_rows:
            return 0
        places = "group_uid string, topic_uid string, shard int, trace string, offset bigint"
        table_traces = self._spark.createDataFrame(trace_rows, f"{places}, {_FETCHED}")
        journal_traces = transforms.readable_lines(self._journal.lines(DELIVERIES)).select(*_TRACE)
        missing_lines = table_traces.join(journal_traces, [*_TRACE], "left_anti")
        return sum(self._add(DELIVERIES, missing_lines.select("day", "hour", "line")).values())

    def _ask(self, questions: Sequence[T], ask: Callable[[Iterable[T]], Iterable[Any]]) -> Any:
        """The answers to questions for DynamoDB. Few are gathered here, because Python workers take seconds to start;
        many by Spark."""
        if (answers := backfill.few_answers(questions, ask)) is not None:
            return answers
        tasks = max(1, min(len(questions), _TASKS))
        return self._spark.sparkContext.parallelize(questions, tasks).mapPartitions(ask)

    def _bring_home(self, table: str) -> None:
        """Put lines that belong to other days into the journals of those."""
        lines = transforms.readable_lines(self._journal.lines(table))
        misplaced_lines = lines.where(self._misplaced(table))
        for day, count in self._add(table, transforms.lines_of_journal(table, misplaced_lines)).items():
            progress(f"{self._window.name}: {count} lines of {table} belong to {day} and are brought there")
            self.misplaced[day] = count

    def _add(self, table: str, lines: DataFrame | list[backfill.Line]) -> dict[str, int]:
        """Put lines (day, hour, line) into the journal, each where it belongs; how many, by day. Names are derived from
        the lines: who does it again adds nothing. In the place of a damaged row of DynamoDB there is a line without a
        day."""
        counts: Counter[str] = Counter()
        sorted_lines: Iterable[tuple[str, ...]]
        if isinstance(lines, list):
            sorted_lines = sorted({*lines})
        else:
            sorted_lines = lines.distinct().sort("day", "hour", "line").toLocalIterator()
        for (day, hour), some in groupby(sorted_lines, key=lambda row: row[:2]):
            while chunk := [line for _, _, line in islice(some, _LINES)]:
                if not day:
                    self.damaged_rows.update(chunk)
                    continue
                text = "".join(f"{line}\n" for line in chunk).encode()
                name = f"journal/{table}/day={day}/hour={hour}/again-{hashlib.sha256(text).hexdigest()[:32]}"
                self._bucket.put(f"{name}.jsonl.gz", gzip.compress(text, mtime=0))
                counts[day] += len(chunk)
        return dict(counts)


def _offsets(stretches: Iterable[int]) -> Ranges:
    return merged((n * transforms.STRETCH, (n + 1) * transforms.STRETCH - 1) for n in stretches)


def _table(entries: Iterable[Entry], sums: Sequence[Row]) -> Table:
    """A table as its files tell: `sums` has one or more rows for each file and topic. Spark also writes files without
    rows, which no manifest names."""
    counts: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    topics_by_file: defaultdict[str, set[str]] = defaultdict(set)
    for row in sums:
        count, checksum = counts[row.topic]
        counts[row.topic] = (count + row.rows, checksum ^ row.checksum)
        topics_by_file[row.file.rpartition("/")[2]].add(row.topic)
    files = (
        File(entry.name, entry.size, min(topics), max(topics))
        for entry in sorted(entries, key=lambda entry: entry.name)
        if (topics := topics_by_file.get(entry.name.rpartition("/")[2]))
    )
    return Table(
        tuple(files),
        {topic: Rows(count, in_hex(checksum)) for topic, (count, checksum) in sorted(counts.items())},
    )


def _scan(sums: Iterable[Row], voids: Iterable[Row]) -> Scan:
    places: dict[str, tuple[str, str, int]] = {}
    ranges: defaultdict[str, list[Range]] = defaultdict(list)
    counts: Counter[str] = Counter()
    for row in (*sums, *voids):
        key = shard_key(row.topic, row.topic_uid, row.shard)
        places[key] = (row.topic, row.topic_uid, row.shard)
        starts = (row.first + n * row.step for n in range(64) if row.bits >> n & 1)
        ranges[key] += [(start, start + row.step - 1) for start in starts]
        counts[key] += row.rows
    for row in sums:
        counts[shard_key(row.topic, row.topic_uid, row.shard)] -= row.rows
    return Scan({key: merged(each) for key, each in ranges.items()}, places, counts)
