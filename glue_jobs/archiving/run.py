"""The archive's run over days: those that were asked for, or whose journal has changed."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from glue_jobs.archiving import backfill, completeness
from glue_jobs.archiving.completeness import Proof
from glue_jobs.archiving.day import archive, note_unchanged
from glue_jobs.archiving.rows import WindowRows
from glue_jobs.archiving.scan import ENDLESS, Settings
from glue_jobs.archiving.window import Window, digest_of, inputs, size_of
from glue_jobs.common import arguments, manifest, session
from glue_jobs.common.arguments import progress, summary
from glue_jobs.common.bucket import Bucket
from glue_jobs.common.damage import name_damage
from glue_jobs.common.failures import ends_the_run, sentence
from glue_jobs.common.manifest import Manifest
from glue_jobs.common.ranges import size, without
from glue_jobs.common.schemas import TABLES
from glue_jobs.common.session import Start

JOB = "archive"
_LISTED = 20  # damaged rows of a day


_COUNTS = (
    *("windows", "unchanged", *TABLES, "files", "bytes"),
    *("backfilled", "backfilled_edits", "backfilled_traces", "without_id", "damaged_rows"),
)
"""The sums over all windows of one run, in the summary's order."""


class ArchiveJob:
    """One run of the job over several days. A day that fails stops no other: `failed` has its name and the reason, and
    nothing of it was published."""

    def __init__(self, *, start: Start, bucket: Bucket, settings: Settings) -> None:
        self._start = start
        self._bucket = bucket
        self._settings = settings
        self.totals = Counter(dict.fromkeys(_COUNTS, 0))
        self.days: dict[str, Manifest] = {}
        self.failed: dict[str, str] = {}
        self._damaged_rows: dict[str, tuple[str, ...]] = {}
        self._late: set[str] = set()
        self._is_small = False

    def look_at(self, windows: Iterable[Window], end: datetime | None, *, again: bool) -> None:
        """Archive the windows whose journal has changed since they were archived (`again`: all of them). Then fetch
        what the log has up to `end`, but the journal of no window had. Archive the days to which messages were fetched
        meanwhile, too. Raises an error that would stop every day, such as a full disk."""
        windows = list(windows)
        journal_bytes = sum(size_of(inputs(self._bucket, window)) for window in windows)
        self._is_small = journal_bytes < session.SMALL_BYTES
        for window in windows:
            self._late.discard(window.name)
            self._try(window, again=again)
        if end and not self.failed:
            self._fetch_rest(int(end.timestamp() * 1000) - 1)
        for day in sorted(self._late):
            self._try(Window(date.fromisoformat(day)), again=True)

    def _fetch_rest(self, until_ms: int) -> None:
        """Fetch what the log has of any shard behind its proved offsets: of days whose journal is gone."""
        proof, settings = completeness.load(self._bucket), self._settings
        gaps = [(key, proof.end(key), ENDLESS, until_ms) for key in settings.shards]
        log = backfill.table_of(settings, "log")
        if backfill.few_answers(gaps, lambda some: backfill.offsets(*log, some)) == []:
            return
        today = Window(datetime.fromtimestamp(until_ms / 1000, UTC).date())
        rows = WindowRows(
            spark=self._start(self._is_small), bucket=self._bucket, window=today, settings=settings
        )
        counts = rows.fetch(gaps)
        self.totals["backfilled"] += sum(counts.values())
        self._late |= counts.keys()
        if rows.damaged_rows:
            self._damaged_rows[today.name] = tuple(sorted(rows.damaged_rows))

    def _try(self, window: Window, *, again: bool) -> None:
        try:
            with name_damage(self._bucket):
                self._look_at(window, again=again)
        except Exception as error:
            if ends_the_run(error):
                raise
            self.failed[window.name] = sentence(error)
            progress(f"{window.name} failed: {sentence(error)}")

    def _look_at(self, window: Window, *, again: bool) -> None:
        if not again and (old_manifest := manifest_if_unchanged(self._bucket, window)):
            note_unchanged(self._bucket, window, old_manifest, self._settings)
            self.totals["unchanged"] += 1
            return
        if old := manifest.load(self._bucket, window.name):
            window = Window(window.day, max(window.until_hour, old.until_hour))
        progress(f"{window.name} up to {window.until_hour}:00 …")
        spark = self._start(self._is_small)
        rows = WindowRows(spark=spark, bucket=self._bucket, window=window, settings=self._settings)
        result = archive(rows, self._bucket, window, self._settings)
        self.totals.update({"windows": 1, **result.counts})
        self.days[window.name] = result.manifest
        if damaged_rows := tuple(sorted(rows.damaged_rows)):
            self._damaged_rows[window.name] = damaged_rows
            for row in damaged_rows[:_LISTED]:
                progress(f"{window.name}: a row of DynamoDB can't be read and is passed over: {row}")
        self._late |= result.touched

    def problems(self) -> list[dict[str, Any]]:
        """What is missing or damaged on the days of this run, for the summary."""
        proof = completeness.load(self._bucket)
        in_archive = [problem for day in self.days.values() for problem in problems_of(day, proof)]
        in_tables = [
            {"day": day, "damaged_rows": list(rows[:_LISTED]), "rows": len(rows)}
            for day, rows in self._damaged_rows.items()
        ]
        return [*in_archive, *in_tables]


def run(start: Start, bucket: Bucket, choices: argparse.Namespace) -> int:
    """Do the job; its exit code."""
    start_time = time.monotonic()
    settings = Settings(
        choices.prefix if choices.backfill else None,
        choices.region,
        choices.file_mb << 20,
        choices.grace_minutes * 60_000,
        int(choices.now.timestamp() * 1000),
        choices.lateness_minutes,
        choices.backfill_edits,
    )
    damages: list[str] = []
    if settings.prefix:
        keys, damages = backfill.shards(*backfill.table_of(settings, "control"))
        settings = replace(settings, shards=tuple(keys))
    archive_job = ArchiveJob(start=start, bucket=bucket, settings=settings)
    completeness.ensure(bucket)
    again = bool(choices.window) or settings.edits
    archive_job.look_at(windows(bucket, choices), closed_until(choices), again=again)
    problems = archive_job.problems()
    problems += [{"topics": damages}] if damages else []
    seconds = round(time.monotonic() - start_time, 1)
    summary(JOB, **archive_job.totals, problems=problems, failed=archive_job.failed, seconds=seconds)
    if archive_job.failed:
        return arguments.FAILED
    return arguments.INCOMPLETE if problems else arguments.DONE


def windows(bucket: Bucket, choices: argparse.Namespace) -> Iterator[Window]:
    """The windows to look at, in order: `--window`, or the days of the journal that are closed and not too old; with
    `--open yes` also those that are not closed."""
    if choices.window:
        yield choices.window
        return
    names = {
        name for table in TABLES for name in bucket.folders(f"journal/{table}") if name.startswith("day=")
    }
    for name in sorted(names):
        try:
            day = date.fromisoformat(name.removeprefix("day="))
        except ValueError:
            progress(f"journal/*/{name} is no day: it is passed over")
            continue
        day_window = Window(day)
        if day < oldest_day(choices):
            continue
        if day > choices.now.date():
            progress(f"journal/*/{name} is later than now: it is passed over")
            continue
        if day_window.is_closed(choices.now, choices.lateness_minutes):
            yield day_window
        elif choices.open:
            yield Window(day, min(24, choices.now.hour + 1 if day == choices.now.date() else 24))


def closed_until(choices: argparse.Namespace) -> datetime | None:
    """Up to when everything must have come: to the end of the last closed day, or to now with `--open yes`. None: only
    `--window` is looked at."""
    if choices.window or choices.open:
        return None if choices.window else choices.now
    closed: datetime = choices.now - timedelta(minutes=choices.lateness_minutes)
    return closed.replace(hour=0, minute=0, second=0, microsecond=0)


def oldest_day(choices: argparse.Namespace) -> date:
    """The first of the days to look at."""
    day: date = (choices.now - timedelta(days=choices.look_back_days)).date()
    return day


def manifest_if_unchanged(bucket: Bucket, window: Window) -> Manifest | None:
    """The window's manifest, if the same journal was archived before and nothing was missing."""
    old = manifest.load(bucket, window.name)
    if (
        old
        and old.complete
        and old.until_hour >= window.until_hour
        and old.input == digest_of(inputs(bucket, window))
    ):
        return old
    return None


def problems_of(day: Manifest, proof: Proof) -> list[dict[str, Any]]:
    """What is wrong with a day, for the summary. Offsets that it lacks are not wrong if another day has them."""
    missing_offsets = [
        {
            "day": day.day,
            "shard": shard.key,
            "missing": [list(r) for r in missing_ranges],
            "offsets": size(missing_ranges),
        }
        for shard in day.shards
        if (missing_ranges := without(shard.missing, proof.ranges.get(shard.key, ())))
    ]
    damaged_files = [{"day": day.day, "damaged": list(day.damaged)}] if day.damaged else []
    bodies = [{"day": day.day, "bodies_missing": list(day.bodies_missing)}] if day.bodies_missing else []
    return [*missing_offsets, *damaged_files, *bodies]
