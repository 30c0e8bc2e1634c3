"""`python -m bench`: measure the design's figures and print them beside their targets."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .figures import Figure, markdown, plain

MEASURES = {
    "units": "request units and round trips of each operation",
    "manage_units": "request units of changing settings, dead letters and what waits",
    "cold": "importing app.py, beside importing chalice and botocore alone",
    "handler": "the handler's own CPU time on top of a bare put",
    "writers": "32 producing processes on 4 shards and on one",
    "timers": "delayed messages beside many that wait; an idle stage",
    "consumers": "8 consuming processes of one group",
    "tenants": "how one tenant's backlog delays the others, in virtual time",
    "cursors": "the largest cursor item, beside many leases and in simulated worlds",
    "over_http": "messages a second through the local HTTP server",
    "engines": "the local service on the embedded engine, beside DynamoDB Local",
    "console": "the console's pages: time to the whole page, and bytes",
    "delivery_units": "request units of a delivery, an attempt that fails, a retry",
    "cost": "units and CPU time that docs/cost.md computes with",
    "delivery": "delivery by HTTP: latency, rates, a storm of retries, a hanging subscriber",
}


def main() -> int:
    """Measure what was asked for; exit code 1 where a figure misses its target."""
    args = _arguments()
    figures: list[Figure] = []
    start = time.monotonic()
    for name in args.only or MEASURES:
        print(f"{name}: {MEASURES[name]} …", file=sys.stderr, flush=True)
        with engine(args.endpoint) as endpoint:
            figures += importlib.import_module(f"bench.{name}").measure(endpoint, args.verbose)
    print(f"{time.monotonic() - start:.0f} s", file=sys.stderr)
    print(markdown(figures) if args.markdown else plain(figures))
    missed_works = [f.work for f in figures if f.met is False]
    if missed_works:
        print(f"\nMissed: {'; '.join(missed_works)}", file=sys.stderr)
    return 1 if missed_works else 0


def _arguments() -> argparse.Namespace:
    listing = "\n".join(f"  {name:<14} {about}" for name, about in MEASURES.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure the design's figures and print them beside their targets.",
        epilog=f"measures:\n{listing}\n\n"
        "The storage forms of a cursor are compared by `python -m bench.claims` (docs/adr/0001).",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", action="append", choices=MEASURES, metavar="NAME", help="this measure (repeatable)"
    )
    parser.add_argument(
        "--markdown", action="store_true", help="print a Markdown table of the figures with a target"
    )
    parser.add_argument("--verbose", action="store_true", help="also what explains a figure, on stderr")
    parser.add_argument(
        "--endpoint",
        default=os.environ.get("AWS_ENDPOINT_URL_DYNAMODB"),
        help="a DynamoDB to use (default AWS_ENDPOINT_URL_DYNAMODB, else a local engine for each measure)",
    )
    return parser.parse_args()


@contextmanager
def engine(endpoint: str | None) -> Iterator[str]:
    """The given engine, or one in memory for this measure alone: what others left would slow it."""
    if endpoint:
        yield endpoint
        return
    from local.engine.dynamodb_local import dynamodb_local

    with dynamodb_local() as engine:
        yield engine.endpoint


if __name__ == "__main__":
    sys.exit(main())
