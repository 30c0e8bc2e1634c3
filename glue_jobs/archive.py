"""Archive closed windows: journal to Parquet tables of messages and deliveries, with a proof that nothing is lacking.

Without --window, every day whose journal has changed since it was archived (late data), or never was. A window that
was archived before and has the same journal keeps its files. Missing offsets are fetched from DynamoDB into the
journal; what is nowhere is reported, and the exit code is 3.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from . import arguments, compact, manifest, proof, session
from .alone import Busy, alone
from .bucket import Bucket
from .journal import Window, inputs
from .manifest import Manifest, TooNew
from .proof import Proved
from .publish import Mismatch
from .ranges import size, without
from .telling import progress, summary
from .window import Result, Settings, Shrunk, archive, tidy

JOB = "archive"


def read(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The job's arguments."""
    parser = arguments.reader(JOB, __doc__)
    add = parser.add_argument
    add("--window", type=window, help="a day (2026-11-21) or, up to its end, an hour (2026-11-21T10), in UTC")
    add("--open", type=arguments.yes_no, default=False, help="yes: also what today has so far")
    add("--look-back-days", type=arguments.positive, default=10, help="how old late data is noticed (10)")
    add(
        "--lateness-minutes",
        type=arguments.count,
        default=15,
        help="how long after its end a window is closed (15)",
    )
    add(
        "--grace-minutes",
        type=arguments.count,
        default=60,
        help="how long replaced files stay for readers (60)",
    )
    add("--rows-per-file", type=arguments.positive, default=5_000_000, help="about the most (5,000,000)")
    add("--compact-mb", type=arguments.positive, help="then compact, into files of so many MB (not at all)")
    add(
        "--prefix",
        default=os.environ.get("HEADRACE_PREFIX") or "headrace",
        help="of table names (HEADRACE_PREFIX)",
    )
    add(
        "--region",
        default=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1",
    )
    add(
        "--backfill",
        type=arguments.yes_no,
        help="fetch what is missing from DynamoDB (yes, where one is known)",
    )
    add("--now", type=arguments.instant, default=datetime.now(UTC), help=argparse.SUPPRESS)
    found = arguments.parse(parser, argv)
    if found.backfill is None:
        found.backfill = not found.folder or bool(os.environ.get("AWS_ENDPOINT_URL_DYNAMODB"))
    if found.window and not found.open and not closed(found.window, found.now, found.lateness_minutes):
        parser.error(
            f"the window {found.window.name} is not closed yet; --open yes archives what it has so far"
        )
    return found


def window(text: str) -> Window:
    """A day, or a day up to the end of an hour."""
    day, separator, hour = text.partition("T")
    if not separator:
        return Window(arguments.day(day))
    if len(hour) == 2 and hour.isdigit() and int(hour) < 24:
        return Window(arguments.day(day), int(hour) + 1)
    raise argparse.ArgumentTypeError(f"{text!r} is neither a day (2026-11-21) nor an hour (2026-11-21T10)")


def closed(chosen: Window, now: datetime, lateness_minutes: int) -> bool:
    """Has all that belongs to the window come, but for accidents?"""
    return chosen.end + timedelta(minutes=lateness_minutes) <= now


@dataclass
class Totals:
    """What the windows of one run have together."""

    windows: int = 0
    unchanged: int = 0
    messages: int = 0
    deliveries: int = 0
    files: int = 0
    bytes: int = 0
    backfilled: int = 0
    without_id: int = 0

    def add(self, result: Result) -> None:
        tables = result.manifest.tables
        self.windows += 1
        self.messages += sum(part.rows for part in tables["messages"])
        self.deliveries += sum(part.rows for part in tables["deliveries"])
        self.bytes += sum(part.bytes for parts in tables.values() for part in parts)
        self.files += result.files
        self.backfilled += result.backfilled
        self.without_id += result.without_id


def run(spark: SparkSession, bucket: Bucket, chosen: argparse.Namespace) -> int:
    """Do the job; its exit code."""
    began = time.monotonic()
    settings = Settings(
        f"{chosen.prefix}-log" if chosen.backfill else None,
        chosen.region,
        chosen.rows_per_file,
        chosen.grace_minutes * 60_000,
        int(chosen.now.timestamp() * 1000),
    )
    totals, found, again = Totals(), dict[str, Manifest](), set[str]()
    for each in windows(bucket, chosen):
        if not chosen.window and (same := unchanged(bucket, each)):
            tidy(bucket, same, settings)
            totals.unchanged += 1
            continue
        progress(f"{each.name} up to {each.until_hour}:00 …")
        result = archive(spark, bucket, each, settings)
        totals.add(result)
        found[each.name] = result.manifest
        again |= {day for day in result.touched if day < each.name}
    for day in sorted(again):  # what was fetched may belong to an earlier day
        result = archive(spark, bucket, Window(date.fromisoformat(day)), settings)
        totals.add(result)
        found[day] = result.manifest
    proved = proof.load(bucket)
    problems = [problem for day in found.values() for problem in told(day, proved)]
    seconds = round(time.monotonic() - began, 1)
    summary(JOB, **vars(totals), problems=problems, seconds=seconds)
    if chosen.compact_mb:
        compact.run(spark, bucket, compaction(chosen))
    return arguments.INCOMPLETE if problems else arguments.DONE


def compaction(chosen: argparse.Namespace) -> argparse.Namespace:
    """The arguments of a compaction of the days that were looked at."""
    day = chosen.window.day if chosen.window else None
    given = {
        "--bucket": chosen.bucket,
        "--folder": chosen.folder,
        "--from": day or oldest(chosen),
        "--to": day,
        "--target-mb": chosen.compact_mb,
        "--grace-minutes": chosen.grace_minutes,
        "--now": chosen.now.isoformat(),
    }
    return compact.read([str(text) for pair in given.items() if pair[1] is not None for text in pair])


def windows(bucket: Bucket, chosen: argparse.Namespace) -> Iterator[Window]:
    """The windows to look at, in order."""
    if chosen.window:
        old = manifest.load(bucket, chosen.window.name)
        until = max(chosen.window.until_hour, old.until_hour if old else 0)
        yield Window(chosen.window.day, until)
        return
    names = {name for table in ("messages", "deliveries") for name in bucket.folders(f"journal/{table}")}
    for name in sorted(names):
        day = date.fromisoformat(name.removeprefix("day="))
        whole = Window(day)
        if day < oldest(chosen):
            continue
        if closed(whole, chosen.now, chosen.lateness_minutes):
            yield whole
        elif chosen.open and day <= chosen.now.date():
            yield Window(day, min(24, chosen.now.hour + 1 if day == chosen.now.date() else 24))


def oldest(chosen: argparse.Namespace) -> date:
    """The first of the days to look at."""
    day: date = (chosen.now - timedelta(days=chosen.look_back_days)).date()
    return day


def unchanged(bucket: Bucket, each: Window) -> Manifest | None:
    """The window's manifest, if just this journal was archived before."""
    old = manifest.load(bucket, each.name)
    if old and old.complete and old.until_hour >= each.until_hour and old.input == inputs(bucket, each)[1]:
        return old
    return None


def told(day: Manifest, proved: Proved) -> list[dict[str, Any]]:
    """What is wrong with a day, for the summary. What it lacked may have been found with another day."""
    missing = [
        {"day": day.day, "shard": shard.key, "missing": [list(r) for r in lacking], "offsets": size(lacking)}
        for shard in day.shards
        if (lacking := without(shard.missing, proved.ranges.get(shard.key, ())))
    ]
    others = [{"day": day.day, "damaged": list(day.damaged)}] if day.damaged else []
    bodies = [{"day": day.day, "bodies_missing": list(day.bodies_missing)}] if day.bodies_missing else []
    return [*missing, *others, *bodies]


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    chosen = read(argv)
    try:
        with alone(chosen.folder), session.start(JOB, chosen.folder, chosen.bucket) as spark:
            return run(spark, Bucket(spark, chosen.bucket), chosen)
    except (TooNew, Shrunk, Mismatch, Busy) as error:
        summary(JOB, error=str(error))
        return arguments.FAILED


if __name__ == "__main__":
    sys.exit(main())
