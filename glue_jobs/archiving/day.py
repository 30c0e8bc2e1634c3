"""One day of the journal, or its first hours, into the archive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from glue_jobs.archiving import completeness, publish
from glue_jobs.archiving.backfill import PIECE
from glue_jobs.archiving.rows import WindowRows
from glue_jobs.archiving.scan import ENDLESS, AttemptCount, Scan, Settings
from glue_jobs.archiving.window import Window
from glue_jobs.common import manifest
from glue_jobs.common.arguments import progress
from glue_jobs.common.bucket import Bucket
from glue_jobs.common.failures import JobError, Unreadable
from glue_jobs.common.manifest import Manifest, Shard, Table
from glue_jobs.common.ranges import Ranges, common, pieces, size, without
from glue_jobs.common.schemas import DELIVERIES, MESSAGES


class Overlap(JobError):
    """The journal has messages that another day has archived; the archive stays as it is."""


class Shrunk(JobError):
    """The journal has less than was archived of it before; the archive stays as it is."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a window: what its manifest has and what was fetched for it, counted, and the other days whose
    journal was added to."""

    manifest: Manifest
    counts: Mapping[str, int]
    touched: set[str]


def note_unchanged(bucket: Bucket, window: Window, day: Manifest, settings: Settings) -> None:
    """Note that a day's journal is the same still, and what follows its manifest."""
    if not day.is_closed:
        day = replace(day, written_ms=settings.read_ms(window))
        manifest.save(bucket, day)
    tidy(bucket, day, settings)


def tidy(bucket: Bucket, day: Manifest, settings: Settings) -> None:
    """What follows the manifest, for a run that was stopped before: the proof, and what may go."""
    was_shown = publish.show(bucket, day)
    proof = completeness.load(bucket)
    if (new := proof.with_day(day, bool(settings.prefix))) != proof:
        completeness.save(bucket, new)
    if was_shown or not settings.grace_ms:  # else readers had the old lists until now: the next run sweeps
        publish.sweep(bucket, day, settings.grace_ms, settings.now_ms)


def archive(rows: WindowRows, bucket: Bucket, window: Window, settings: Settings) -> Result:
    """Bring a window into the archive. Raises TooNew, Shrunk or Mismatch: then nothing was published."""
    try:
        return _DayArchiver(rows=rows, bucket=bucket, window=window, settings=settings).run()
    except Exception:
        with suppress(Exception):
            rows.discard()
        raise


class _DayArchiver:
    def __init__(self, *, rows: WindowRows, bucket: Bucket, window: Window, settings: Settings) -> None:
        self._rows, self._bucket, self._window, self._settings = rows, bucket, window, settings
        self._old = manifest.load(bucket, window.name)
        self._proved = completeness.load(bucket)
        self._backfilled_edits = self._backfilled_traces = 0

    def run(self) -> Result:
        messages, scan, gaps, first_offsets, bodies_missing = self._look()
        offsets, days = self._backfill(scan, gaps)
        if offsets:
            progress(f"{self._window.name}: {offsets} offsets came from DynamoDB")
        days |= self._backfill_edits(scan)
        if days:
            self._rows.look_again()
            messages, scan, gaps, first_offsets, bodies_missing = self._look()
        self._refuse_less(scan)
        self._refuse_overlap(scan)
        deliveries, without_id = self._write_deliveries(messages, scan)
        tables = {MESSAGES: messages, DELIVERIES: deliveries}
        new = Manifest(
            day=self._window.name,
            until_hour=self._window.until_hour,
            input=self._rows.digest,
            tables={name: self._kept(name, table) for name, table in tables.items()},
            shards=_shards(scan, first_offsets, gaps),
            damaged=tuple(sorted(self._rows.damaged_objects)),
            bodies_missing=bodies_missing,
            written_ms=self._settings.read_ms(self._window),
        )
        return self._switch(new, offsets, without_id, days)

    def _switch(self, new: Manifest, offsets: int, without_id: int, days: set[str]) -> Result:
        now_ms = self._settings.now_ms
        new = publish.switch(self._bucket, self._old, new, now_ms)
        tidy(self._bucket, new, self._settings)
        tables = new.tables.values()
        counts = {
            **{name: table.rows for name, table in new.tables.items()},
            "files": sum(len(table.files) for table in tables),
            "bytes": sum(table.bytes for table in tables),
            "backfilled": offsets,
            "backfilled_edits": self._backfilled_edits,
            "backfilled_traces": self._backfilled_traces,
            "without_id": without_id,
            "damaged_rows": len(self._rows.damaged_rows),
        }
        return Result(new, counts, {*days, *self._rows.misplaced} - {self._window.name})

    # What there is

    def _look(self) -> tuple[Table, Scan, dict[str, Ranges], dict[str, int], tuple[str, ...]]:
        """The messages that the journal has and that are written now, their offsets, the gaps, from where on each shard
        should be whole, and the names of bodies that are not there. Raises TooNew, Mismatch."""
        while True:
            result = self._rows.write_messages(self._old)
            if result.offsets == result.scan.offsets == result.rows:
                break
            digest = self._rows.digest
            self._rows.look_again()
            if self._rows.digest == digest:  # else the journal of an open day grew meanwhile
                raise publish.Mismatch(
                    f"{self._window.name}: {result.offsets} rows were written, {result.rows} with "
                    f"{result.scan.offsets} offsets are there"
                )
        scan = result.scan
        first_offsets = {
            key: completeness.begin(key, ranges, self._proved, self._old)
            for key, ranges in scan.ranges.items()
        }
        gaps = completeness.gaps(scan.ranges, first_offsets, self._proved, self._old)
        if gaps:
            neighbour_ranges = self._rows.neighbour_ranges()
            gaps = {key: gap for key, r in gaps.items() if (gap := without(r, neighbour_ranges.get(key, ())))}
        return result.table, scan, gaps, first_offsets, result.bodies_missing

    # What is lacking

    def _backfill(self, scan: Scan, gaps: Mapping[str, Ranges]) -> tuple[int, set[str]]:
        """Fetch what is missing into the journal; how many offsets came, and of which days."""
        if not self._settings.prefix:
            return 0, set()
        questions = [
            (key, first, last, 0) for key, ranges in gaps.items() for first, last in pieces(ranges, PIECE)
        ]
        end_ms = min(int(self._window.end.timestamp() * 1000) - 1, self._settings.now_ms)
        for key in {*self._settings.shards, *scan.ranges}:
            first = self._proved.end(key, scan.ranges.get(key, ()))
            questions.append((key, first, ENDLESS, end_ms))
        counts = self._rows.fetch(questions) if questions else {}
        return sum(counts.values()), set(counts)

    def _backfill_edits(self, scan: Scan) -> set[str]:
        """Fetch what was edited or cancelled, of which the journal has only earlier editions, into it; of which days. A
        row that begins where the journal has nothing has come whole, in its last edition (`_backfill`)."""
        if not self._settings.edits:
            return set()
        counts = self._rows.fetch_edits(
            [(key, first, last, 0) for key, ranges in scan.ranges.items() for first, last in ranges]
        )
        if counts:
            self._backfilled_edits = sum(counts.values())
            progress(f"{self._window.name}: {self._backfilled_edits} edited offsets came from DynamoDB")
        return set(counts)

    def _refuse_less(self, scan: Scan) -> None:
        lost_ranges = {
            shard.key: missing_ranges
            for shard in (self._old.shards if self._old else ())
            if (missing_ranges := without(shard.ranges, scan.ranges.get(shard.key, ())))
        }
        if lost_ranges:
            raise Shrunk(
                f"The journal of {self._window.name} has lost {sum(map(size, lost_ranges.values()))} messages that are "
                "in the archive; it stays as it is."
            )

    def _refuse_overlap(self, scan: Scan) -> None:
        """What another day has archived cannot be this day's."""
        old_ranges = {shard.key: shard.ranges for shard in self._old.shards} if self._old else {}
        new_ranges = {key: without(each, old_ranges.get(key, ())) for key, each in scan.ranges.items()}
        twice = {key: common(each, self._proved.ranges.get(key, ())) for key, each in new_ranges.items()}
        if not any(twice.values()):
            return
        for day in manifest.load_all(self._bucket):
            for shard in day.shards if day.day != self._window.name else ():
                if offsets := common(shard.ranges, twice.get(shard.key, ())):
                    raise Overlap(
                        f"{self._window.name}: the offsets {offsets[0][0]} to {offsets[-1][1]} of {shard.key} are in "
                        f"the archive of {day.day}. Of the journal's objects, remove those that do not belong there."
                    )

    # Deliveries

    def _write_deliveries(self, messages: Table, scan: Scan) -> tuple[Table, int]:
        """The deliveries that are written now, and how many attempts are without an id."""
        attempt_counts = self._rows.attempt_counts()
        if not attempt_counts:
            return Table(), 0
        if count := self._backfill_attempts(attempt_counts):
            progress(f"{self._window.name}: {count} attempts came from DynamoDB")
            self._backfilled_traces = count
            self._rows.look_again([DELIVERIES])  # messages are written already
            attempt_counts = self._rows.attempt_counts()
        old_ranges: dict[str, Ranges] = {}
        for each in attempt_counts:
            known_ranges = (*old_ranges.get(each.shard_key, ()), *each.stretches)
            ranges = without(known_ranges, [(0, each.first - 1), *scan.ranges.get(each.shard_key, ())])
            old_ranges[each.shard_key] = ranges
        topics = {each.topic for each in attempt_counts if old_ranges[each.shard_key]}
        return self._rows.write_deliveries(messages, self._with_ids(old_ranges, scan), topics)

    def _backfill_attempts(self, attempt_counts: Sequence[AttemptCount]) -> int:
        """Fetch the traces that the table has of the window, and the journal has not, into the journal; how many."""
        if not self._settings.prefix:
            return 0
        begin_ms = int(self._window.begin.timestamp() * 1000)
        end_ms = min(int(self._window.end.timestamp() * 1000), self._settings.now_ms)
        return self._rows.fetch_attempts(attempt_counts, begin_ms, end_ms)

    def _with_ids(self, old_ranges: Mapping[str, Ranges], scan: Scan) -> list[Manifest]:
        """The other days that tell the ids of attempts in these ranges, as far back as needed. Raises Unreadable: a day
        may tell some and can't be read."""
        first = {key: ranges[0][0] for key, ranges in old_ranges.items() if ranges}
        all_first = dict(first)
        other_days: list[Manifest] = []
        damage: Unreadable | None = None
        for day in reversed(manifest.days(self._bucket)):
            if not first:
                break
            if day == self._window.name:
                continue
            try:
                other_day = manifest.load(self._bucket, day)
            except Unreadable as error:
                damage = error if day < self._window.name else damage  # none tries what comes later
                continue
            if not other_day:
                continue
            if any(common(shard.ranges, old_ranges.get(shard.key, ())) for shard in other_day.shards):
                other_days.append(other_day)
            for shard in other_day.shards:
                if shard.ranges and shard.ranges[0][0] <= first.get(shard.key, -1):
                    del first[shard.key]
        if damage and any(self._lacks(scan, other_days, key, offset) for key, offset in all_first.items()):
            raise damage
        return other_days

    def _lacks(self, scan: Scan, other_days: Sequence[Manifest], key: str, first: int) -> bool:
        """Is any of a shard's offsets, from this one on up to the window's own, in none of the days?"""
        own, proved_ranges = scan.ranges.get(key), self._proved.ranges.get(key)
        last = own[0][0] - 1 if own else max(first, proved_ranges[-1][1] if proved_ranges else first)
        known_ranges = (
            each for day in other_days for shard in day.shards if shard.key == key for each in shard.ranges
        )
        return bool(without([(first, last)], known_ranges))

    def _kept(self, name: str, new: Table) -> Table:
        """The table's files as they will be. Raises Shrunk."""
        old = self._old.table(name) if self._old else Table()
        for topic, rows in old.topics.items() if name == DELIVERIES else ():  # messages may be cancelled
            if topic not in new.topics or new.topics[topic].count < rows.count:
                raise Shrunk(
                    f"{name} of {self._window.name} would lose rows of {topic}; the archive stays as it is."
                )
        return publish.kept(self._bucket, name, self._window.name, new, old)


def _shards(scan: Scan, first_offsets: Mapping[str, int], gaps: Mapping[str, Ranges]) -> tuple[Shard, ...]:
    return tuple(
        Shard(*scan.places[key], first_offsets[key], ranges, scan.voids[key], gaps.get(key, ()))
        for key, ranges in sorted(scan.ranges.items())
    )
