"""`make verify-stage`: attacks on a deployed stage, by HTTP and, with a STAGE, on its roles by IAM's own simulation;
and whether calls, functions, alarms and metrics are in order, as far as a look does no harm.

It makes two topics and some tokens of its own and deletes them. HEADRACE_TOKEN is an admin token for everything.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import sys
from collections.abc import Sequence

from infra.__main__ import add_options, given_options
from infra.cli import Aws
from infra.stages import read
from infra.template import StackError

from . import attacks, checks, roles
from .http import Notes, Stage, Unreachable

_TOKEN = re.compile(r"hr_[A-Za-z0-9_-]+")


def verify(url: str, iam_url: str, token: str, notes: Notes, origins: Sequence[str] = ()) -> None:
    """Try all attacks on the service at a URL, which `origins` may call. Raises Unreachable."""
    name = f"verify-{secrets.token_hex(4)}"
    scene = attacks.Scene(Stage(url), token, f"{name}-a", f"{name}-b")
    try:
        scene.set_up()
        for attack in attacks.ATTACKS:
            attack(scene, notes)
        checks.by_http(scene, notes, origins)
    finally:
        scene.tear_down()
    if iam_url:
        attacks.the_second_api(Stage(iam_url), token, notes)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m infra.verify", description=__doc__)
    get = os.environ.get
    parser.add_argument(
        "--url", default=get("HEADRACE_URL"), help="the stage's URL (HEADRACE_URL; else of the stack)"
    )
    parser.add_argument(
        "--no-aws", action="store_true", help="only by HTTP: for the local service, or without the CLI"
    )
    add_options(parser)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """The command line: 0 without findings, 1 with, 2 where nothing could be tried."""
    options = _parser().parse_args(arguments)
    notes = Notes(lambda line: print(line, flush=True))
    token = os.environ.get("HEADRACE_TOKEN", "")
    try:
        if not token:
            raise StackError(
                "Set HEADRACE_TOKEN: an admin token for everything (make token STAGE=… prints the first)."
            )
        if not _TOKEN.fullmatch(token):
            raise StackError("HEADRACE_TOKEN is no token: hr_… with letters and digits, as it was printed.")
        outputs: dict[str, str] = {}
        origins: Sequence[str] = ()
        if not options.no_aws:
            aws, stack = Aws(), read(options.stage, given_options(options))
            outputs, origins = roles.outputs(aws, stack.prefix), stack.cors_origins
            roles.verify(aws, stack.prefix, notes)
        url = options.url or outputs.get("EndpointURL", "")
        verify(url, outputs.get("IamEndpointURL", ""), token, notes, origins)
        if not options.no_aws:
            checks.of_aws(aws, stack, outputs, notes)
    except (StackError, Unreachable) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{notes.tries} tries, {len(notes.findings)} findings{':' if notes.findings else ''}")
    for finding in notes.findings:
        print(f"  {finding}")
    return 1 if notes.findings else 0


if __name__ == "__main__":
    sys.exit(main())
