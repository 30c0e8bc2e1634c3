"""Options of `replay`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from glue_jobs.common import access, arguments

SELECTION = ("tag", "key", "where", "into", "group", "rate")


def of_replay(about: str | None, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The checked arguments."""
    parser = arguments.reader("replay", about)
    parser.add_argument(
        "--replay", type=arguments.name, metavar="ID", help="the replay to run, or to run again"
    )
    parser.add_argument(
        "--topic", type=arguments.name, help="make a replay of this topic's archived messages"
    )
    parser.add_argument(
        "--from", dest="begin", metavar="TIME", type=arguments.instant, help="accepted from this time on"
    )
    parser.add_argument(
        "--to", dest="end", metavar="TIME", type=arguments.instant, help="accepted before this time"
    )
    parser.add_argument("--tag", help="only with this tag")
    parser.add_argument("--key", help="only with this business key")
    parser.add_argument("--where", help="only where this holds of the JSON body, as \"a.b > 5 AND c = 'x'\"")
    parser.add_argument(
        "--into", type=arguments.name, metavar="TOPIC", help="the topic to send to (the same)"
    )
    parser.add_argument("--group", type=arguments.name, help="the one group of it that gets them (all)")
    parser.add_argument("--rate", type=arguments.positive, help="messages a second (100)")
    parser.add_argument(
        "--dry-run", type=arguments.yes_no, default=False, metavar="yes|no", help="only count (no)"
    )
    access.add_options(parser)
    choices = arguments.parse(parser, argv)
    _check(parser, choices)
    return choices


def _check(parser: argparse.ArgumentParser, choices: argparse.Namespace) -> None:
    """Leave the process where the arguments do not fit one another."""
    making = [name for name in ("topic", "begin", "end", *SELECTION, "dry_run") if getattr(choices, name)]
    if choices.replay and making:
        parser.error("--replay names a replay whose choice is made: give nothing else to choose by.")
    if not choices.replay and not (choices.topic and choices.begin and choices.end):
        parser.error("give --replay, or --topic with --from and --to.")
    access.check_url(parser, choices)
    if not access.has_token(choices):
        parser.error("there is no token: set HEADRACE_TOKEN, or HEADRACE_DATA to the folder of `make run`.")
