"""A soak of a stated length: the time is divided among the kinds of nets, each plays seeds that no test plays, and a
report at the end says how much. (`make soak` without a length runs every test at its full size.)"""

from __future__ import annotations

import argparse
import os
import sys
import time

from .crew import Soak, run
from .kinds import KINDS, Played

_TOLD_EVERY_S = 15.0
_MOST_COMPLAINTS = 5
_HEAD = "| net | played | seeds | steps | faults injected | violations |"


def main() -> int:
    options = _options()
    names = options.only.split(",") if options.only else [*KINDS]
    if unknown := set(names) - set(KINDS):
        sys.exit(f"--only: there is no {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}.")
    soak = run(names, options.first, options.minutes * 60, options.processes, _Progress(options.minutes))
    print(_report(soak, options.minutes))
    return 1 if soak.violations else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, required=True, help="how long it lasts, whatever the machine"
    )
    parser.add_argument(
        "--processes", type=int, default=max(1, (os.cpu_count() or 2) - 1), help="at once; %(default)s"
    )
    parser.add_argument("--only", default="", help=f"some of {', '.join(KINDS)} (with commas)")
    parser.add_argument(
        "--first",
        type=int,
        default=int(time.time()) // 60 * 1_000,
        help="the first seed; by default others in each minute, which nobody has played yet",
    )
    options = parser.parse_args()
    if options.minutes <= 0 or options.processes <= 0:
        parser.error("--minutes and --processes are more than 0")
    return options


class _Progress:
    """A line now and then, and each failure at once."""

    def __init__(self, minutes: float) -> None:
        self._minutes = minutes
        self._began = self._told = time.monotonic()

    def __call__(self, soak: Soak, kind: str, number: int, result: Played | None) -> None:
        if result and result.complaints:
            print(_failure(kind, number, result), flush=True)
        now = time.monotonic()
        if now - self._told >= _TOLD_EVERY_S:
            self._told = now
            counts = ", ".join(f"{t.counts['played']:,} {name}" for name, t in soak.tallies.items())
            minutes = (now - self._began) / 60
            print(
                f"{minutes:.1f} of {self._minutes:g} minutes: {counts}; {soak.violations} violations",
                flush=True,
            )


def _failure(kind: str, number: int, result: Played) -> str:
    complaints = "\n  ".join(result.complaints[:_MOST_COMPLAINTS])
    return f"VIOLATION in {kind}, seed {number}\n  {complaints}\n  again: {result.again}"


def _report(soak: Soak, minutes: float) -> str:
    lines = [
        f"{minutes:g} minutes",
        _HEAD,
        "|---|--:|---|--:|--:|--:|",
    ]
    for name, tally in soak.tallies.items():
        counts, last = tally.counts, max(tally.first, tally.next - 1)
        lines.append(
            f"| {name} | {counts['played']:,} | {tally.first} to {last} | {counts['steps']:,} "
            f"| {counts['faults']:,} | {len(tally.failures)} |"
        )
    for kind, number, since in soak.unended:
        lines.append(f"under way at the end for {time.monotonic() - since:.0f} s: {kind}, seed {number}")
    for kind, tally in soak.tallies.items():
        lines += [_failure(kind, number, result) for number, result in tally.failures]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
