"""A report: its days, its tables, its page."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from glue_jobs.common.arguments import DONE, INCOMPLETE, progress, summary
from glue_jobs.common.bucket import Bucket
from glue_jobs.common.damage import name_damage, refuse_damaged, sound_table
from glue_jobs.common.failures import JobError
from glue_jobs.common.manifest import Manifest, days, is_small, load_all
from glue_jobs.common.schemas import DELIVERIES, MESSAGES, TABLES
from glue_jobs.common.session import Start
from glue_jobs.reporting import aggregates, hours
from glue_jobs.reporting.group_counts import GroupCounts, groups
from glue_jobs.reporting.page import Report, is_short, page
from glue_jobs.reporting.tables import write

_DAYS = 7
_LOOK_BACK = timedelta(days=7)  # messages that were accepted earlier and delivered in the report's days
_MOST_GAPS = 10
_EMPTY = "There is nothing in the archive yet: run make archive."


@dataclass(frozen=True, slots=True)
class Span:
    """Whole days, both included."""

    first: date
    last: date

    @property
    def begin(self) -> datetime:
        return datetime.combine(self.first, datetime.min.time(), UTC)

    @property
    def end(self) -> datetime:
        """Just behind the last day."""
        return datetime.combine(self.last, datetime.min.time(), UTC) + timedelta(days=1)


def span_of(arguments: argparse.Namespace, days: Sequence[str]) -> Span | None:
    """The days to tell of: those that were asked for, else the last seven of the archive; None where it is empty."""
    if not days:
        return None
    oldest, newest = (date.fromisoformat(day) for day in (min(days), max(days)))
    last = arguments.last or max(newest, arguments.first or newest)
    first = arguments.first or min(last, max(last - timedelta(days=_DAYS - 1), oldest))
    return Span(first, last)


def tables(messages: DataFrame, deliveries: DataFrame, span: Span, end: datetime) -> dict[str, DataFrame]:
    """The report's tables. Both inputs may hold earlier days as well, for what was still under way at the beginning;
    they end at `end`."""
    within = F.col("day").between(F.lit(span.first), F.lit(span.last))
    mine, fates = deliveries.where(within), aggregates.fates(messages, deliveries)
    hourly = {"hourly": aggregates.by_hour(messages, mine)} if is_short(span.first, span.last) else {}
    return {
        "volumes": aggregates.volumes(messages.where(within)),
        "daily": aggregates.by_day(messages, mine),
        **hourly,
        "failures": aggregates.failures(mine),
        "explained": aggregates.fate_counts(fates.where(within)),
        "backlog": aggregates.backlog(aggregates.messages_to_deliver(fates), span.begin, end),
    }


def known_until(manifests: Sequence[Manifest], span: Span) -> datetime:
    """When the archive of these days ends: the last may not be over."""
    return next((m.known_until for m in manifests if m.day == span.last.isoformat()), span.end)


def quiet_days(bucket: Bucket) -> set[str]:
    """Days between two archived ones of which neither the journal nor the archive has a file: nothing was sent or
    tried. A day that was lost looks the same: its messages are missing offsets of a later day where their shard has
    later messages, and nothing shows that its attempts are missing."""
    archived_days = [date.fromisoformat(day) for day in days(bucket)]
    folders = (f"{place}/{table}" for place in ("journal", "archive") for table in TABLES)
    busy = {name.removeprefix("day=") for folder in folders for name in bucket.folders(folder)}
    between = (
        str(before + timedelta(days=n))
        for before, after in pairwise(archived_days)
        for n in range(1, (after - before).days)
    )
    return {*between} - busy


def gaps(manifests: Sequence[Manifest], span: Span, quiet: Set[str] = frozenset()) -> list[str]:
    """What the archive lacks of the days, but for quiet ones, in sentences."""
    complete = {manifest.day: manifest.complete for manifest in manifests}
    sentences = []
    for n in range((span.last - span.first).days + 1):
        day = (span.first + timedelta(days=n)).isoformat()
        if day not in complete and day not in quiet:
            sentences.append(f"{day} is not archived.")
        elif not complete.get(day, True):
            sentences.append(f"The archive of {day} is not complete: see its manifest.")
    if len(sentences) > _MOST_GAPS:
        sentences[_MOST_GAPS:] = [
            f"And {len(sentences) - _MOST_GAPS} more days are not or not wholly archived."
        ]
    return sentences


def notes(manifests: Sequence[Manifest], archive_days: int | None = None) -> list[str]:
    """Days that are not over in the archive, and when days are deleted, in sentences."""
    open_days = [f"{m.day} is archived until {m.known_until:%H:%M}." for m in manifests if not m.is_closed]
    return open_days + (
        [f"The archive of a day is deleted after {archive_days} days."] if archive_days else []
    )


def _hour_behind(moment: datetime) -> datetime:
    """The end of the hour that a moment is in."""
    return moment + (datetime.min.replace(tzinfo=UTC) - moment) % timedelta(hours=1)


class NothingArchived(JobError):
    """There is no day to tell of."""


class ReportJob:
    """One report."""

    def __init__(
        self, *, start: Start, bucket: Bucket, span: Span, topic: str | None, archive_days: int | None
    ) -> None:
        self._start = start
        self._bucket = bucket
        self._span = span
        self._topics = [topic] if topic else None
        self._archive_days = archive_days
        self.folder = f"reports/{span.first}_{span.last}" + (f"_{topic}" if topic else "")

    def run(self, counts: Sequence[GroupCounts], silent: str | None) -> tuple[dict[str, int], list[str]]:
        """Write everything; the number of rows of each table, and what the archive lacks. `counts` is what the
        service says of its groups, `silent` why it says nothing. Raises NothingArchived, Unreadable,
        Changed."""
        manifests = load_all(self._bucket, self._span.first - _LOOK_BACK, self._span.last)
        self._refuse_nothing(manifests)
        refuse_damaged(self._bucket, manifests, self._topics)
        spark = self._start(is_small(manifests))
        rows = {}
        end = known_until(manifests, self._span)
        quiet = quiet_days(self._bucket)
        with name_damage(self._bucket, manifests, self._topics):
            messages, deliveries = (
                sound_table(spark, self._bucket, name, manifests, self._topics)
                for name in (MESSAGES, DELIVERIES)
            )
            for name, table in tables(messages, deliveries, self._span, _hour_behind(end)).items():
                rows[name] = write(self._bucket, f"{self.folder}/{name}", table)
                progress(f"report: {name}, {len(rows[name])} rows")
            self._hours(manifests, messages, deliveries, end, quiet)
        gap_sentences = gaps(manifests, self._span, quiet)
        service_notes = [f"Groups that nobody has tried yet are not shown: {silent}."] if silent else []
        sentences = [*gap_sentences, *notes(manifests, self._archive_days), *service_notes]
        report = Report(self._span.first, self._span.last, **rows, counts=counts, gaps=sentences)
        self._bucket.write(f"{self.folder}/report.html", page(report))
        return {name: len(table) for name, table in rows.items()}, gap_sentences

    def _refuse_nothing(self, manifests: Sequence[Manifest]) -> None:
        topics = {topic for each in manifests for topic in each.topics}
        is_empty = not (topics if self._topics is None else topics.intersection(self._topics))
        if is_empty or self._span.first > self._span.last:
            of_topic = f" of {self._topics[0]}" if self._topics else ""
            raise NothingArchived(
                f"Nothing{of_topic} is archived of {self._span.first} to {self._span.last}: run make archive, or see "
                "GET /v1/archive for the days and topics that are there."
            )

    def _hours(
        self,
        manifests: Sequence[Manifest],
        messages: DataFrame,
        deliveries: DataFrame,
        end: datetime,
        quiet: Set[str],
    ) -> None:
        """The topics as they were at each full hour until then, for the service."""
        begin, end = self._span.begin, end.replace(minute=0, second=0, microsecond=0)
        if end - begin > timedelta(days=hours.MOST_DAYS):
            return
        rows = [row.asDict() for row in hours.steps(messages, deliveries, begin, end).collect()]
        first = max(self._span.first - _LOOK_BACK, date.fromisoformat(manifests[0].day))
        last = self._span.last.isoformat()
        whole_days = quiet | {m.day for m in manifests if m.complete and (m.is_closed or m.day == last)}
        count = hours.write(
            self._bucket,
            hours.counts(rows, (end - begin) // timedelta(hours=1)),
            begin,
            end,
            first,
            whole_days,
        )
        progress(f"report: as they were at each hour, {count} texts")


def run(start: Start, bucket: Bucket, options: argparse.Namespace) -> int:
    """Make the report; the exit code."""
    start_time = time.monotonic()
    span = span_of(options, days(bucket))
    if span is None:
        if options.first or options.last or options.topic:
            raise NothingArchived(_EMPTY)
        progress(f"report: {_EMPTY}")  # no failure: so it is each night until something is sent to the stage
        summary("report", page=None, rows={}, lacking=[])
        return DONE
    job = ReportJob(
        start=start, bucket=bucket, span=span, topic=options.topic, archive_days=options.archive_days
    )
    rows, gap_sentences = job.run(*groups(options))
    page_uri = bucket.uri(f"{job.folder}/report.html")
    if options.folder:
        progress(f"report: open {options.folder / job.folder / 'report.html'}")
    summary(
        "report",
        page=page_uri,
        rows=rows,
        lacking=gap_sentences,
        archive_days=options.archive_days,
        seconds=round(time.monotonic() - start_time, 1),
    )
    return INCOMPLETE if gap_sentences else DONE
