"""Command lines, `--name value` as Glue gives them. Everything is checked before anything is touched.

    read = reader("archive", __doc__)
    read.add_argument("--window", type=window, help=…)
    arguments = parse(read)

Exit code 2, a sentence on standard error and a summary in JSON for bad arguments; `--help` for people.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NoReturn

DONE, FAILED, BAD_ARGUMENTS, INCOMPLETE = 0, 1, 2, 3
"""Exit codes of all jobs. INCOMPLETE: it did what it could, and the summary says what is missing."""

EXIT_CODES = (
    "exit codes: 0 done; 1 failed; 2 bad arguments, nothing was touched; 3 incomplete, see the summary"
)
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_YEARS = range(1970, 9000)
_MOST = 2**31 - 1  # what Java calls an int
_MOST_DAYS, _MOST_MINUTES = 36_500, 525_600


class _Parser(argparse.ArgumentParser):
    """Says in the summary, too, what it refuses."""

    def error(self, message: str) -> NoReturn:
        summary(self.prog.rpartition(".")[2], error=message)
        super().error(message)


def reader(job: str, about: str | None) -> argparse.ArgumentParser:
    """A parser that knows what all jobs have in common: where the bucket is."""
    parser = _Parser(
        prog=f"python -m glue_jobs.{job}",
        description=about,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    data = os.environ.get("HEADRACE_DATA")
    parser.add_argument(
        "--bucket",
        type=bucket,
        default=os.environ.get("HEADRACE_BUCKET") or "headrace",
        help="the bucket's name (HEADRACE_BUCKET, else headrace)",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(data, "bucket") if data else None,
        help="the folder that stands for the bucket on one machine (HEADRACE_DATA/bucket); not given on AWS",
    )
    return parser


def parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The checked arguments. Leaves the process (code 2) where one is wrong."""
    arguments = parser.parse_args(argv)
    if arguments.folder and not arguments.folder.is_dir():
        parser.error(
            f"--folder {arguments.folder} is not there: start Headrace (make run) and send something."
        )
    return arguments


def bucket(text: str) -> str:
    """A bucket's name."""
    if not _BUCKET.match(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name of a bucket (without s3://)")
    return text


def name(text: str) -> str:
    """The name of a topic or group, or a replay's id."""
    if not _NAME.match(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name")
    return text


def day(text: str) -> date:
    """A day as 2026-11-21, in UTC."""
    try:
        if len(text) == 10 and (day := date.fromisoformat(text)).year in _YEARS:
            return day
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is no day such as 2026-11-21")


def instant(text: str) -> datetime:
    """A time as 2026-11-21T10:30:00Z; without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.year in _YEARS:
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is no time such as 2026-11-21T10:30:00Z")


def positive(text: str) -> int:
    """A whole number from 1."""
    return _whole(text, 1, _MOST)


def days(text: str) -> int:
    """How many days; at least one."""
    return _whole(text, 1, _MOST_DAYS)


def minutes(text: str) -> int:
    """How many minutes; also none."""
    return _whole(text, 0, _MOST_MINUTES)


def _whole(text: str, least: int, most: int) -> int:
    if text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} to {most:,}")


def add_flag(parser: argparse.ArgumentParser, option: str, about: str, default: bool | None = False) -> None:
    """An option that is yes or no: Glue gives every argument a value."""
    parser.add_argument(option, type=yes_no, default=default, metavar="yes|no", help=about)


def yes_no(text: str) -> bool:
    """yes or no."""
    if text in ("yes", "no"):
        return text == "yes"
    raise argparse.ArgumentTypeError(f"{text!r} is neither yes nor no")


def progress(text: str) -> None:
    """One line about what is under way."""
    print(text, file=sys.stderr, flush=True)


def summary(job: str, **counts: Any) -> None:
    """Print the summary as the last line. A reader that has gone, as in `| head`, is no error."""
    try:
        print(json.dumps({"job": job, **counts}, separators=(",", ":")), flush=True)
    except BrokenPipeError:  # Python writes the rest once more when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
