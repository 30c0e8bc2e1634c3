"""`python -m infra`: writes what `chalice package --merge-template` adds to Chalice's own template."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from .stages import CONFIG, read
from .template import StackError, template


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m infra",
        description="Write the resources around the functions as a template (JSON) for "
        "`chalice package --merge-template`. `make package` does both.",
        epilog=f"What an option leaves open is taken from {CONFIG}, under the stage's `infra`.",
    )
    add_options(parser)
    parser.add_argument("--out", type=Path, help="the file to write (standard output)")
    options = parser.parse_args(arguments)
    try:
        stack = read(options.stage, given_options(options))
        text = json.dumps(template(stack), indent=1) + "\n"
    except StackError as error:
        print(error, file=sys.stderr)
        return 2
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text)
    else:
        sys.stdout.write(text)
    return 0


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that say which stack."""
    parser.add_argument("--stage", required=True, help=f"a stage of {CONFIG}")
    parser.add_argument("--prefix", help="names begin with it; it is the stack's name (headrace-<stage>)")
    parser.add_argument("--domain", help="a host name of your own for the API; needs --certificate")
    parser.add_argument(
        "--certificate", help="the ARN of the domain's certificate in ACM, in the same region"
    )
    parser.add_argument("--zone", help="the id of the domain's hosted zone in Route 53, to write the record")
    parser.add_argument("--email", help="who is written to when an alarm goes off")


def given_options(options: argparse.Namespace) -> dict[str, str]:
    """The options that were given, by the names of the stage's settings."""
    names = ("prefix", "domain", "certificate", "zone", "email")
    return {name: value for name in names if (value := getattr(options, name)) is not None}


if __name__ == "__main__":
    sys.exit(main())
