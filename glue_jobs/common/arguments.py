"""Command lines, `--name value` as Glue gives them. Everything is checked before anything is touched.

    read = reader("archive", __doc__)
    read.add_argument("--window", type=window, help=…)
    arguments = parse(read)

Exit code 2 and a sentence on standard error for bad arguments; `--help` for people.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path

DONE, FAILED, BAD_ARGUMENTS, INCOMPLETE = 0, 1, 2, 3
"""Exit codes of all jobs. INCOMPLETE: it did what it could, and the summary says what is missing."""

EXIT_CODES = (
    "exit codes: 0 done; 1 failed; 2 bad arguments, nothing was touched; 3 incomplete, see the summary"
)
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z")
_GLUE = re.compile(r"--(JOB_(NAME|ID|RUN_ID)|SECURITY_CONFIGURATION|encryption-type)\Z")


def reader(job: str, about: str | None) -> argparse.ArgumentParser:
    """A parser that knows what all jobs have in common: where the bucket is."""
    parser = argparse.ArgumentParser(
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
        type=folder,
        default=Path(data, "bucket") if data else None,
        help="the folder that stands for the bucket on one machine (HEADRACE_DATA/bucket); not given on AWS",
    )
    return parser


def parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The checked arguments. Glue's own are left out. Leaves the process (code 2) where one is wrong."""
    words = list(sys.argv[1:] if argv is None else argv)
    ours: list[str] = []
    while words:
        name = words.pop(0)
        if _GLUE.match(name):
            del words[:1]
        else:
            ours.append(name)
    arguments = parser.parse_args(ours)
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


def folder(text: str) -> Path:
    """A folder, which `parse` looks for."""
    return Path(text)


def day(text: str) -> date:
    """A day as 2026-11-21, in UTC."""
    try:
        if len(text) == 10:
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is no day such as 2026-11-21")


def instant(text: str) -> datetime:
    """A time as 2026-11-21T10:30:00Z; without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 2026-11-21T10:30:00Z") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def positive(text: str) -> int:
    """A whole number from 1."""
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1")


def count(text: str) -> int:
    """A whole number from 0."""
    if text.isascii() and text.isdigit():
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0")


def yes_no(text: str) -> bool:
    """yes or no: Glue gives every argument a value."""
    if text in ("yes", "no"):
        return text == "yes"
    raise argparse.ArgumentTypeError(f"{text!r} is neither yes nor no")
