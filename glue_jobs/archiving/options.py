"""Options of the jobs that write the archive."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from glue_jobs.archiving.window import Window
from glue_jobs.common import arguments


def of_archive(about: str | None, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The checked arguments of `archive`."""
    parser = arguments.reader("archive", about)
    add = parser.add_argument
    add("--window", type=window, help="a day (2026-11-21) or, up to its end, an hour (2026-11-21T10), in UTC")
    arguments.add_flag(parser, "--open", "yes: also what today has so far")
    add("--look-back-days", type=arguments.days, default=10, help="how old late data is noticed (10)")
    lateness = "how long after its end a window is closed (15)"
    add("--lateness-minutes", type=arguments.minutes, default=15, help=lateness)
    grace = "how long replaced files stay for readers (60)"
    add("--grace-minutes", type=arguments.minutes, default=60, help=grace)
    add("--now", type=arguments.instant, help=argparse.SUPPRESS)
    add("--file-mb", type=arguments.positive, default=128, help="about how large files become (128)")
    _add_tables(parser)
    arguments.add_flag(
        parser, "--backfill", "fetch what is missing from DynamoDB (yes, where one is known)", None
    )
    edits = "yes: also edits and cancellations that the journal lacks, for which the days' whole log is read"
    arguments.add_flag(parser, "--backfill-edits", edits)
    choices = _parse(parser, argv)
    if choices.backfill is None:
        choices.backfill = not choices.folder or bool(os.environ.get("AWS_ENDPOINT_URL_DYNAMODB"))
    if choices.backfill_edits and not choices.backfill:
        parser.error("--backfill-edits yes asks DynamoDB: it needs --backfill yes")
    if choices.window and choices.window.begin > choices.now:
        parser.error(f"the window {choices.window.name} is later than now ({choices.now:%Y-%m-%dT%H:%M:%SZ})")
    asked = None if choices.open else choices.window
    if asked and not asked.is_closed(choices.now, choices.lateness_minutes):
        parser.error(f"the window {asked.name} is not closed yet; --open yes archives what it has so far")
    return choices


def of_forget(about: str | None, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The checked arguments of `forget`."""
    parser = arguments.reader("forget", about)
    add = parser.add_argument
    add("--topic", type=arguments.name, required=True, help="the message's topic")
    add("--id", type=arguments.name, required=True, help="the message's id")
    add("--place", type=place, metavar="SHARD/OFFSET", help="where it is, if it was delayed")
    arguments.add_flag(parser, "--dry-run", "yes: only count what would be removed")
    _add_tables(parser)
    return arguments.parse(parser, argv)


def place(text: str) -> tuple[int, int]:
    """A shard and an offset."""
    shard, _, offset = text.partition("/")
    if (shard + offset).isascii() and shard.isdigit() and offset.isdigit() and len(text) < 24:
        return int(shard), int(offset)
    raise argparse.ArgumentTypeError(f"{text!r} is no place such as 3/1207: a shard and an offset")


def _add_tables(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    prefix = os.environ.get("HEADRACE_PREFIX") or "headrace"
    add("--prefix", default=prefix, help="of table names (HEADRACE_PREFIX)")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    add("--region", default=region, help="where the tables are (AWS_REGION)")


def window(text: str) -> Window:
    """A day, or a day up to the end of an hour."""
    day, separator, hour = text.partition("T")
    if not separator:
        return Window(arguments.day(day))
    if len(hour) == 2 and hour.isdigit() and int(hour) < 24:
        return Window(arguments.day(day), int(hour) + 1)
    raise argparse.ArgumentTypeError(f"{text!r} is neither a day (2026-11-21) nor an hour (2026-11-21T10)")


def _parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    choices = arguments.parse(parser, argv)
    choices.now = choices.now or datetime.now(UTC) + _clock_offset(choices.folder)
    return choices


def _clock_offset(folder: Path | None) -> timedelta:
    """How far the clock of the local service was moved (POST /v1/clock), from the file `clock` beside the bucket, in
    ms. Its messages have that time."""
    try:
        return timedelta(milliseconds=int((folder.parent / "clock").read_text())) if folder else timedelta()
    except (OSError, ValueError, OverflowError):
        return timedelta()
