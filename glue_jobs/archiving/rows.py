"""A window's journal becomes rows. What is decided about them is in day.py."""

from __future__ import annotations

import gzip
import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, islice
from typing import Any, TypeVar

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from glue_jobs.archiving import aside, backfill, publish, transforms
from glue_jobs.archiving.journal import Journal
from glue_jobs.archiving.scan import AttemptCount, Gap, Scan, Settings, Topic, Written, shard_key
from glue_jobs.archiving.window import Window
from glue_jobs.common import manifest
from glue_jobs.common.arguments import progress
from glue_jobs.common.bucket import Bucket, Entry
from glue_jobs.common.manifest import Manifest, Part
from glue_jobs.common.ranges import Range, Ranges, merged
from glue_jobs.common.schemas import DELIVERIES, JOURNAL, JOURNAL_VERSION, MESSAGES, TABLES
from glue_jobs.common.session import empty_table

_TRACE = ("group_uid", "topic_uid", "shard", "trace", "offset")
_EDITION = StructType([JOURNAL[MESSAGES][name] for name in (*transforms.SHARD, "offset", "edition")])
_FETCHED = "day string, hour string, line string"
_TASKS = 64  # that ask DynamoDB
_LINES = 20_000  # of an object of the journal

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
        """Write the messages to a temporary folder. A large body whose file is missing is taken from `old`, the
        archive of the day before this run. Raises TooNew."""
        lines, counts = self._journal.read_despite_damage(self._write_lines)
        self._journal.check(lines, counts["newest"], counts["unreadable"])
        if counts["misplaced"]:
            self._bring_home(MESSAGES)
        bodies_missing = self._write_bodies(old)
        scan = _scan(self._rows_aside().where(F.col("kind") != transforms.ELSEWHERE))
        return Written(counts["offsets"], scan, bodies_missing)

    def _write_lines(self) -> tuple[DataFrame, Mapping[str, Any]]:
        lines, line_stats, row_count = self._journal.lines(MESSAGES), Observation(), Observation()
        unreadable = F.count_if(F.expr(f"not ({transforms.READABLE})"))
        misplaced = transforms.of_another_day(MESSAGES, self._window.day)
        observed_lines = lines.observe(
            line_stats,
            F.max("v").alias("newest"),
            unreadable.alias("unreadable"),
            F.count_if(misplaced).alias("misplaced"),
        )
        large = self._journal.large_topics(MESSAGES, self._settings.rows_per_file)
        own_lines = transforms.readable_lines(observed_lines).where(~misplaced)
        rows = transforms.messages(own_lines, self._parts_by_topic(large))
        counted_rows = rows.observe(row_count, F.count("*").alias("offsets"))
        aside.write_aside(self._bucket, MESSAGES, self._window.name, counted_rows, transforms.KIND)
        return lines, {**line_stats.get, **row_count.get}

    def _write_bodies(self, old: Manifest | None) -> tuple[str, ...]:
        """Write the rows whose bodies are in files of their own. Returns the names of files that are missing. If the
        day was archived before, a body whose file has expired is taken from the archive."""
        if not self._files_aside(transforms.ELSEWHERE):
            return ()
        rows = self._rows_aside().where(F.col("kind") == transforms.ELSEWHERE)
        names = {row.name for row in rows.selectExpr(transforms.NAME).collect()}
        existing_names = sorted(name for name in names if self._bucket.exists(name))
        before = [old] if old and len(existing_names) < len(names) else []
        archived_rows = manifest.table(self._spark, self._bucket, MESSAGES, before)
        rows_with_bodies = transforms.with_bodies(rows, self._bodies(existing_names), archived_rows)
        aside.write_aside(
            self._bucket, MESSAGES, self._window.name, rows_with_bodies, transforms.KIND, mode="append"
        )
        missing_names = names - {*existing_names}
        if before:
            missing_names -= {row.name for row in transforms.archived_bodies(rows, archived_rows).collect()}
        return tuple(sorted(missing_names))

    def _bodies(self, names: Sequence[str]) -> DataFrame:
        if not names:
            return empty_table(self._spark, StructType().add("name", "string").add("bytes", "binary"))
        files = self._spark.read.format("binaryFile").load([self._bucket.uri(name) for name in names])
        start = len(self._bucket.uri("")) + 1
        return files.select(
            F.expr(f"substring(path, {start})").alias("name"), F.col("content").alias("bytes")
        )

    def neighbour_ranges(self) -> Mapping[str, Ranges]:
        """The offsets that the hours before and after have."""
        return self._journal.read_despite_damage(self._read_neighbour_ranges)

    def _read_neighbour_ranges(self) -> Mapping[str, Ranges]:
        lines = transforms.readable_lines(self._journal.lines(MESSAGES, self._window.neighbour_hours))
        return _scan(transforms.messages(lines.where(F.col("v") <= JOURNAL_VERSION), {})).ranges

    def messages(self, scan: Scan) -> dict[str, Part]:
        """The files of messages in the temporary folder, by topic."""
        files = self._files_aside(transforms.ROW)
        return {
            name: publish.part(name, topic.rows, topic.checksum, files[name])
            for name, topic in scan.topics.items()
            if topic.rows
        }

    def _rows_aside(self) -> DataFrame:
        return aside.rows_aside(self._spark, self._bucket, MESSAGES, self._window.name, transforms.KIND)

    def _files_aside(self, kind: str) -> dict[str, tuple[Entry, ...]]:
        return publish.files_aside(self._bucket, MESSAGES, self._window.name, f"/kind={kind}/")

    # Deliveries

    def attempt_counts(self) -> Sequence[AttemptCount]:
        """The attempts that the journal holds. Raises TooNew."""
        if not self._journal.has(DELIVERIES):
            return []
        return self._journal.read_despite_damage(self._read_attempt_counts)

    def _read_attempt_counts(self) -> list[AttemptCount]:
        lines = self._journal.lines(DELIVERIES)
        misplaced = transforms.of_another_day(DELIVERIES, self._window.day)
        rows = (
            lines.groupBy(*transforms.SHARD, "group_uid", misplaced.alias("misplaced"))
            .agg(F.min("offset").alias("first"), F.count("*").alias("count"), F.max("v").alias("v"))
            .collect()
        )
        sound_rows = [row for row in rows if None not in (row.topic, row.topic_uid, row.shard, row.first)]
        self._journal.check(
            lines, max((row.v for row in rows if row.v), default=0), len(rows) - len(sound_rows)
        )
        if any(row.misplaced for row in sound_rows):
            self._bring_home(DELIVERIES)
        return [
            AttemptCount(row.topic, row.topic_uid, row.shard, row.group_uid, row.first, row["count"])
            for row in sound_rows
            if not row.misplaced
        ]

    def write_deliveries(
        self, attempt_counts: Sequence[AttemptCount], other_days: Sequence[Manifest]
    ) -> tuple[dict[str, Part], int]:
        """Write the attempts to a temporary folder, with message ids from this window and from other days. Returns
        the files by topic, and how many attempts have no id."""
        counts: Counter[str] = Counter()
        for each in attempt_counts:
            counts[each.topic] += each.count
        misplaced = transforms.of_another_day(DELIVERIES, self._window.day)
        attempts = transforms.readable_lines(self._journal.lines(DELIVERIES)).where(~misplaced)
        own_messages = self._rows_aside().where(F.col("kind") == transforms.ROW).drop("kind", "of")
        ids = own_messages.unionByName(manifest.table(self._spark, self._bucket, MESSAGES, other_days))
        without_id = Observation()
        rows = transforms.deliveries(attempts, ids, self._parts_by_topic(counts)).observe(
            without_id, F.count_if(F.col("id").isNull()).alias("rows")
        )
        aside.write_aside(self._bucket, DELIVERIES, self._window.name, rows)
        parts = aside.read_again(self._spark, self._bucket, DELIVERIES, self._window.name)
        return parts, without_id.get["rows"]

    def _parts_by_topic(self, rows: Mapping[str, int]) -> dict[str, int]:
        most = self._settings.rows_per_file
        return {topic: math.ceil(count / most) for topic, count in rows.items() if count > most}

    # What is lacking

    def fetch(self, gaps: Sequence[Gap]) -> dict[str, int]:
        """Copy missing offsets from DynamoDB into the journal. Returns how many came, by day."""
        table, options = backfill.table_of(self._settings, "log")
        rows = self._ask(gaps, lambda some: backfill.offsets(table, options, some))
        return self._add(MESSAGES, self._spark.createDataFrame(rows, _FETCHED))

    def fetch_edits(self, gaps: Sequence[Gap]) -> dict[str, int]:
        """Copy those of these offsets whose rows were edited, and which the journal lacks in that edition. Returns how
        many came, by day."""
        table, options = backfill.table_of(self._settings, "log")
        rows = self._ask(gaps, lambda some: backfill.edits(table, options, some))
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
        misplaced_lines = lines.where(transforms.of_another_day(table, self._window.day))
        for day, count in self._add(table, transforms.lines_of_journal(table, misplaced_lines)).items():
            progress(f"{self._window.name}: {count} lines of {table} belong to {day} and are brought there")
            self.misplaced[day] = count

    def _add(self, table: str, lines: DataFrame) -> dict[str, int]:
        """Put lines into the journal, each where it belongs; how many, by day. Names are derived from the lines: who
        does it again adds nothing. In the place of a damaged row of DynamoDB there is a line without a day."""
        counts: Counter[str] = Counter()
        sorted_lines = lines.distinct().sort("day", "hour", "line").toLocalIterator()
        for (day, hour), some in groupby(sorted_lines, key=lambda row: (row.day, row.hour)):
            while chunk := [row.line for row in islice(some, _LINES)]:
                if not day:
                    self.damaged_rows.update(chunk)
                    continue
                text = "".join(f"{line}\n" for line in chunk).encode()
                name = f"journal/{table}/day={day}/hour={hour}/again-{hashlib.sha256(text).hexdigest()[:32]}"
                self._bucket.put(f"{name}.jsonl.gz", gzip.compress(text, mtime=0))
                counts[day] += len(chunk)
        return dict(counts)


def _scan(rows: DataFrame) -> Scan:
    places: dict[str, tuple[str, str, int]] = {}
    ranges: defaultdict[str, list[Range]] = defaultdict(list)
    voids: Counter[str] = Counter()
    topics: defaultdict[str, Topic] = defaultdict(Topic)
    for row in transforms.coverage(rows).collect():
        key, topic = shard_key(row.topic, row.topic_uid, row.shard), topics[row.topic]
        places[key] = (row.topic, row.topic_uid, row.shard)
        starts = (row.first + n * row.step for n in range(64) if row.bits >> n & 1)
        ranges[key] += [(start, start + row.step - 1) for start in starts]
        voids[key] += row.voids
        topic.rows, topic.checksum = topic.rows + row.rows, topic.checksum ^ row.checksum
    return Scan({key: merged(each) for key, each in ranges.items()}, places, voids, topics)
