"""Options of `report`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from glue_jobs.common import access, arguments


def of_report(about: str | None, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The checked arguments."""
    parser = arguments.reader("report", about)
    parser.add_argument(
        "--from", dest="first", metavar="DAY", type=arguments.day, help="the first day (six before the last)"
    )
    last = "the last day, as 2026-11-21 (the last one archived)"
    parser.add_argument("--to", dest="last", metavar="DAY", type=arguments.day, help=last)
    parser.add_argument("--topic", type=arguments.name, help="tell of this topic only")
    ends = "the stage's archive_days, which the page shows (never)"
    parser.add_argument("--archive-days", type=arguments.days, metavar="N", help=ends)
    access.add_options(parser)
    choices = arguments.parse(parser, argv)
    access.check_url(parser, choices)
    if choices.first and choices.last and choices.first > choices.last:
        parser.error("--from is later than --to.")
    return choices


def of_asof(about: str | None, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The checked arguments of `asof`."""
    parser = arguments.reader("asof", about)
    add, moment = parser.add_argument, "the moment, as 2026-11-20T09:30:00Z"
    add("--topic", type=arguments.name, required=True, help="the topic")
    add("--group", type=arguments.name, help="this group only")
    add("--at", metavar="TIME", type=arguments.instant, required=True, help=moment)
    look_back = "how old messages may be that are counted (30)"
    add("--look-back-days", type=arguments.days, default=30, help=look_back)
    add("--list", type=arguments.positive, metavar="N", help="also N of the messages, the oldest first")
    return arguments.parse(parser, argv)


def of_compare(about: str | None, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The checked arguments of `compare`."""
    parser = arguments.reader("compare", about)
    add, name, only = (
        parser.add_argument,
        arguments.name,
        "only what this replay has sent (the last of each message)",
    )
    add("--topic", type=name, required=True, help="the topic whose messages were replayed")
    add("--group", type=name, required=True, help="its group")
    add("--shadow", type=name, required=True, metavar="TOPIC", help="the topic that they were replayed into")
    add("--shadow-group", type=name, required=True, metavar="GROUP", help="the group there")
    add("--replay", type=name, metavar="ID", help=only)
    return arguments.parse(parser, argv)
