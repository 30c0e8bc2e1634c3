"""A window's rows by Arrow: in this process, on its processors, with what memory does not hold on the disk."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from glue_jobs.archiving import backfill, publish
from glue_jobs.archiving.engine import AttemptCount, Gap, Scan, Settings, Topic, Unusual, Written, shard_key
from glue_jobs.archiving.on_arrow import lines, rows
from glue_jobs.archiving.on_arrow.files import Files
from glue_jobs.archiving.on_arrow.spill import Key, Spill, in_order, partition
from glue_jobs.archiving.on_arrow.workers import Item, Made, Workers
from glue_jobs.archiving.window import Window, digest_of, inputs, size_of
from glue_jobs.common.bucket import Bucket, Entry
from glue_jobs.common.manifest import Manifest, Part, TooNew
from glue_jobs.common.ranges import Range, Ranges, merged
from glue_jobs.common.schemas import DELIVERIES, MESSAGES, TABLES

MOST_BYTES = 1_000_000_000
"""Of compressed journal in a window, beyond which it is Spark's, which can use more than one machine. So much
was measured: twenty million short messages, ten GB of lines on the disk."""
_OTHER_BYTES = 300_000_000  # of other days' files that tell ids
_LARGE_BYTES = 128_000_000  # of large bodies in a block of offsets
_ASKERS = 8  # of DynamoDB, at once
Group = tuple[str, str, int, str | None]
"""A group on a shard: topic, topic_uid, shard, group_uid."""
_EDITION = itemgetter(*rows.PLACES[MESSAGES], "offset", "edition")  # of a line


def is_for_arrow(journal: Mapping[str, Iterable[Entry]]) -> bool:
    """Is it small enough for one machine?"""
    return size_of(journal) <= MOST_BYTES


class OnArrow:
    """The engine for what one machine does in minutes. What is damaged or unusual it leaves to Spark (Unusual)."""

    def __init__(self, bucket: Bucket, window: Window, settings: Settings) -> None:
        self._bucket, self._window, self._settings = bucket, window, settings
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-archive-"))
        self._workers = Workers()
        self._files: dict[str, list[Path]] = {}
        self._ids = lru_cache(8)(self._ids_of)
        self._entries: dict[str, list[Entry]] = {}
        self.damaged_objects: set[str] = set()
        self.damaged_rows: set[str] = set()
        self.look_again()

    def __enter__(self) -> OnArrow:
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def digest(self) -> str:
        return digest_of(self._entries)

    def look_again(self, tables: Iterable[str] = TABLES) -> None:
        self._entries |= inputs(self._bucket, self._window, tables)
        self._attempts: Spill | None = None
        self._attempt_keys: defaultdict[Group, list[Key]] = defaultdict(list)

    # Messages

    def write_messages(self, old: Manifest | None) -> Written:
        self._bucket.delete(f"{publish.ASIDE}/{self._window.name}")
        spill = self._read(MESSAGES, self._journal(MESSAGES))
        keys = in_order(spill.counts)

        def make_block(key: Key) -> rows.Block:
            return rows.messages(spill.take(key), rows.place_of(MESSAGES, key), self._bodies)

        ranges: defaultdict[str, list[Range]] = defaultdict(list)
        places: dict[str, tuple[str, str, int]] = {}
        voids: Counter[str] = Counter()
        topics: dict[str, Topic] = {}
        for topic, blocks in groupby(
            zip(keys, self._workers.map_ahead(make_block, keys), strict=True), lambda pair: pair[0][0]
        ):
            files, total = self._files_of(MESSAGES, topic, "/kind=row"), Topic()
            for (_, topic_uid, shard, _), block in blocks:
                files.add(block.rows)
                total.add(block.rows.num_rows, block.checksum)
                name = shard_key(topic, topic_uid, shard)
                places[name] = topic, topic_uid, shard
                ranges[name] += block.ranges
                voids[name] += block.voids
            files.close()
            topics[topic], self._files[topic] = total, files.local
        scan = Scan({name: merged(each) for name, each in ranges.items()}, places, voids, topics)
        return Written(scan.rows, scan, ())

    def _bodies(self, names: Sequence[str]) -> list[bytes]:
        """Large bodies. Raises Unusual where one is gone: then it may be in the archive."""
        bodies, size = [], 0
        for name in names:
            body = self._bucket.get(name)
            size += len(body or b"")
            if body is None or size > _LARGE_BYTES:
                raise Unusual("There are many large bodies, or one is gone.")
            bodies.append(body)
        return bodies

    def neighbour_ranges(self) -> Mapping[str, Ranges]:
        entries = [
            entry
            for hour in self._window.neighbour_hours
            for entry in self._bucket.entries(f"journal/{MESSAGES}/{hour}")
            if entry.name.endswith(".gz")
        ]
        try:
            spill = self._read(MESSAGES, entries)
        except TooNew as error:
            raise Unusual(str(error)) from error
        ranges: defaultdict[str, list[Range]] = defaultdict(list)
        for key in spill.counts:
            ranges[shard_key(*key[:-1])] += rows.ranges_of(rows.ids([spill.take(key)]).offsets)
        return {name: merged(each) for name, each in ranges.items()}

    def messages(self, scan: Scan) -> dict[str, Part]:
        return self._parts(MESSAGES, scan.topics, "/kind=row/")

    # Deliveries

    @lines.only_usual()
    def attempt_counts(self) -> Sequence[AttemptCount]:
        self._attempts = spill = self._read(DELIVERIES, self._journal(DELIVERIES))
        self._attempt_keys.clear()
        attempts_by_key: dict[Group, tuple[int, int]] = {}
        for key in spill.counts:
            topic, _, topic_uid, shard, _ = key
            sums = spill.read(key).group_by("group_uid").aggregate([("offset", "min"), ("offset", "count")])
            for row in sums.to_pylist():
                group = (topic, topic_uid, shard, row["group_uid"])
                first, count = attempts_by_key.get(group, (row["offset_min"], 0))
                attempts_by_key[group] = min(first, row["offset_min"]), count + row["offset_count"]
                self._attempt_keys[group].append(key)
        return [AttemptCount(*group, first, count) for group, (first, count) in attempts_by_key.items()]

    def write_deliveries(
        self, attempt_counts: Sequence[AttemptCount], other_days: Sequence[Manifest]
    ) -> tuple[dict[str, Part], int]:
        assert self._attempts is not None, "attempt_counts comes first"
        spill, self._attempts = self._attempts, None
        for topic in {each.topic for each in attempt_counts}:
            self._files[topic] = [*self._files.get(topic, ()), *self._files_of_other_days(topic, other_days)]
        keys = in_order(spill.counts)

        def make_rows(key: Key) -> tuple[pa.Table, int]:
            topic, _, topic_uid, shard, _ = key
            place = rows.place_of(DELIVERIES, key)
            return rows.with_checksum(
                rows.deliveries(spill.take(key), place, self._ids(topic, topic_uid, shard))
            )

        topics, without_id = {}, 0
        for topic, each in groupby(
            zip(keys, self._workers.map_ahead(make_rows, keys), strict=True), lambda pair: pair[0][0]
        ):
            files, total = self._files_of(DELIVERIES, topic), Topic()
            for _, (attempts, checksum) in each:
                files.add(attempts)
                total.add(attempts.num_rows, checksum)
                without_id += attempts["id"].null_count
            files.close()
            topics[topic] = total
        return self._parts(DELIVERIES, topics), without_id

    @lines.only_usual()
    def _ids_of(self, topic: str, topic_uid: str, shard: int) -> rows.Ids:
        """The ids of a shard's messages, of this window and of the other days."""
        filters = [("topic_uid", "=", topic_uid), ("shard", "=", shard)]
        tables = [
            pq.read_table(
                path, columns=["offset", "id"], filters=filters, partitioning=None, use_threads=False
            )
            for path in self._files.get(topic, ())
        ]
        return rows.ids(tables)

    def _files_of_other_days(self, topic: str, other_days: Sequence[Manifest]) -> list[Path]:
        """Their files of a topic's messages, on this machine."""
        parts = [part for day in other_days if (part := day.part(MESSAGES, topic))]
        if sum(part.bytes for part in parts) > _OTHER_BYTES:
            raise Unusual("Messages of earlier days, of which there are many, are tried again.")
        paths = []
        for number, entry in enumerate(file for part in parts for file in part.files):
            path = self._folder / "others" / topic / f"{number}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            if not self._bucket.get_file(entry.name, path):
                raise Unusual(f"{entry.name} is not there.")
            paths.append(path)
        return paths

    # What is lacking

    def fetch(self, gaps: Sequence[Gap]) -> dict[str, int]:
        table, options = f"{self._settings.prefix}-log", backfill.client_options(self._settings.region)
        counts: Counter[str] = Counter()
        for journal_lines in self._ask_in_parallel(
            gaps, lambda some: list(backfill.offsets(table, options, some))
        ):
            counts.update(self._add(MESSAGES, journal_lines))
        return dict(counts)

    def fetch_edits(self, gaps: Sequence[Gap]) -> dict[str, int]:
        table, options = f"{self._settings.prefix}-log", backfill.client_options(self._settings.region)
        known_editions = self._known_editions()

        def fetch_missing(some: Sequence[Gap]) -> list[backfill.Line]:
            return [
                line
                for line in backfill.edits(table, options, some)
                if not line[0] or _EDITION(json.loads(line[2])) not in known_editions
            ]

        counts: Counter[str] = Counter()
        for journal_lines in self._ask_in_parallel(gaps, fetch_missing):
            counts.update(self._add(MESSAGES, journal_lines))
        return dict(counts)

    def _known_editions(self) -> set[Any]:
        """The _EDITION of each line of the journal that tells of an edit."""
        spill = self._read(MESSAGES, self._journal(MESSAGES))
        editions: set[Any] = set()
        for key in spill.counts:
            block = spill.take(key)
            edited = block.filter(pc.greater(block["edition"], 0))
            pairs = zip(edited["offset"].to_pylist(), edited["edition"].to_pylist(), strict=True)
            editions |= {(*key[:-1], *pair) for pair in pairs}
        return editions

    def fetch_attempts(self, attempt_counts: Sequence[AttemptCount], begin_ms: int, end_ms: int) -> int:
        table, options = f"{self._settings.prefix}-traces", backfill.client_options(self._settings.region)

        def fetch_missing(some: Sequence[AttemptCount]) -> list[list[backfill.Line]]:
            traces = []
            for each in some:
                known_offsets = self._known_traces(each)
                for *_, trace, offset, journal_lines in backfill.attempts(
                    table, options, backfill.traces([each]), begin_ms, end_ms
                ):
                    if (trace, offset) not in known_offsets:
                        traces.append(journal_lines)
            return traces

        count = 0
        for traces in self._ask_in_parallel(attempt_counts, fetch_missing):
            self._add(DELIVERIES, [line for trace in traces for line in trace])
            count += sum(1 for (day, *_), *_ in traces if day)
        return count

    def _known_traces(self, attempt_count: AttemptCount) -> set[tuple[str, int]]:
        """The traces that the journal has of a group on a shard: their names, each with every offset in it."""
        assert self._attempts is not None, "attempt_counts comes first"
        of = attempt_count
        traces: set[tuple[str, int]] = set()
        for key in self._attempt_keys[of.topic, of.topic_uid, of.shard, of.group_uid]:
            attempts = self._attempts.read(key)
            own = attempts.filter(pc.equal(attempts["group_uid"], of.group_uid or ""))
            traces |= set(zip(own["trace"].to_pylist(), own["offset"].to_pylist(), strict=True))
        return traces

    def _ask_in_parallel(
        self, questions: Sequence[Item], ask: Callable[[Sequence[Item]], Made]
    ) -> Iterator[Made]:
        shares = [questions[number::_ASKERS] for number in range(_ASKERS)]
        with ThreadPoolExecutor(_ASKERS) as askers:
            yield from askers.map(ask, [share for share in shares if share])

    def _add(self, table: str, journal_lines: Iterable[backfill.Line]) -> list[str]:
        """Put lines into the journal, each where it belongs; the day of each. Damaged rows are noted."""
        texts: defaultdict[str, list[str]] = defaultdict(list)
        days: list[str] = []
        for day, hour, line in journal_lines:
            if day:
                texts[f"journal/{table}/day={day}/hour={hour}"].append(f"{line}\n")
                days.append(day)
            else:
                self.damaged_rows.add(line)
        for home, some in texts.items():
            content = gzip.compress("".join(some).encode(), mtime=0)
            name = hashlib.sha256(content).hexdigest()[:32]
            self._bucket.put(f"{home}/part-{name}.txt.gz", content)
        return days

    # What all share

    def _journal(self, table: str) -> list[Entry]:
        entries = self._entries[table]
        if not all(entry.size for entry in entries):
            raise Unusual("An object of the journal is empty.")
        return entries

    def _read(self, table: str, entries: Sequence[Entry]) -> Spill:
        def part(some: Sequence[Entry]) -> list[tuple[Key, pa.Table]]:
            return partition(lines.read(table, self._window.name, some, self._bucket.get), rows.PLACES[table])

        spill = Spill(Path(tempfile.mkdtemp(dir=self._folder)))
        for parts in self._workers.map_ahead(part, lines.batches(entries)):
            spill.put(parts)
        return spill

    def _files_of(self, table: str, topic: str, within: str = "") -> Files:
        home = f"{publish.folder_aside(table, self._window.name)}/of={topic}{within}"
        return Files(
            bucket=self._bucket,
            home=home,
            folder=self._folder / table / topic,
            schema=rows.TABLES[table],
            most=self._settings.rows_per_file,
        )

    def _parts(self, table: str, topics: Mapping[str, Topic], within: str = "") -> dict[str, Part]:
        files = publish.files_aside(self._bucket, table, self._window.name, within)
        return {
            name: publish.part(name, topic.rows, topic.checksum, files[name])
            for name, topic in topics.items()
            if topic.rows
        }
