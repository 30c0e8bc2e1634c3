"""Options of `replay`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from glue_jobs.common import access, arguments

SELECTION = ("tag", "key", "where", "into", "group", "rate")


def of_replay(about: str | None, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The checked arguments."""
    parser = arguments.reader("replay", about)
    add, name, instant = parser.add_argument, arguments.name, arguments.instant
    add("--replay", type=name, metavar="ID", help="the replay to run, or to run again")
    add("--topic", type=name, help="make a replay of this topic's archived messages")
    add("--from", dest="begin", metavar="TIME", type=instant, help="accepted from this time on")
    add("--to", dest="end", metavar="TIME", type=instant, help="accepted before this time")
    add("--tag", help="only with this tag")
    add("--key", help="only with this business key")
    add("--where", help="only where this holds of the JSON body, as \"a.b > 5 AND c = 'x'\"")
    add("--into", type=name, metavar="TOPIC", help="the topic to send to (the same)")
    add("--group", type=name, help="the one group of it that gets them (all)")
    add("--rate", type=arguments.positive, help="messages a second (100)")
    arguments.add_flag(parser, "--dry-run", "yes: only count (no)")
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
