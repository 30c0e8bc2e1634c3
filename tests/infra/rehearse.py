"""`make rehearse`: the rehearsal, shown step by step; if it fails, in one sentence with what to do."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from tests.infra.ministack import ROOT

REHEARSAL = "tests/infra/test_rehearsal.py"
STEPS = {
    "used": (
        "package and deploy",
        "delay one, prepare one, pull in three modes",
        "push, retry, bury, redrive",
        "walk over the console's pages",
        "update while somebody produces and consumes",
        "wait for the minute's schedules",
        "read the journal, take a right from a role",
    ),
    "deleted": ("deploy two stages side by side", "delete both, and deploy one again"),
}
"""Of each test, by what `-k` takes of its name."""
LOG = ROOT / "build" / "rehearsal.log"
STEP = re.compile(r"step (?P<number>\d+) of (?P<count>\d+): (?P<about>.*)")
_ERROR = re.compile(r"^E\s+(?P<error>\S.*)", re.MULTILINE)


def follow(lines: Iterable[str], log: Path, seconds: Iterable[float]) -> None:
    """Keep the lines of a run in a file, and show those that tell how far it is. `seconds`: since its beginning, asked
    once for each line shown."""
    elapsed = iter(seconds)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        for line in lines:
            file.write(line)
            file.flush()
            if match := STEP.search(line):
                print(f"{next(elapsed):5.0f} s  {match[0]}", flush=True)


def failure(output: str, log: Path) -> str:
    """One sentence for a run that failed: where, why, and what to do."""
    steps = list(STEP.finditer(output))
    error = _ERROR.search(output)
    place = (
        f"at step {steps[-1]['number']} of {steps[-1]['count']} ({steps[-1]['about']})"
        if steps
        else "at its start"
    )
    reason = error["error"].rstrip(".") if error else "pytest could not run it"
    return (
        f"The rehearsal failed {place}: {reason}. Everything that was said is in {log}; a busy machine may be the "
        "reason: run `make rehearse` again, or only what failed: "
        f"{' or '.join(_parts())}."
    )


def _parts() -> Iterable[str]:
    """How each test is run alone, and which steps it has."""
    last = 0
    for name, steps in STEPS.items():
        first, last = last + 1, last + len(steps)
        yield f"ARGS='-k {name}' (steps {first} to {last})"


def _since(start: float) -> Iterable[float]:
    while True:
        yield time.monotonic() - start


def main() -> int:
    """Run it; the exit code of pytest."""
    parser = argparse.ArgumentParser(prog="make rehearse", description=__doc__)
    parser.add_argument("-k", choices=[*STEPS], help="only the test whose name holds this")
    choices = parser.parse_args()
    start = time.monotonic()
    print(f"This takes 2 to 15 minutes. Its whole output: {LOG}")
    command = [sys.executable, "-m", "pytest", REHEARSAL, "-q", "-x", "-s", "--tb=short", "--color=no"]
    with subprocess.Popen(
        [*command, *(["-k", choices.k] if choices.k else [])],
        cwd=ROOT,
        env=os.environ | {"HEADRACE_REHEARSE": "1", "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as run:
        assert run.stdout is not None
        follow(run.stdout, LOG, _since(start))
    if run.returncode:
        print(failure(LOG.read_text(), LOG.relative_to(ROOT)), file=sys.stderr)
    else:
        print(f"The rehearsal passed in {time.monotonic() - start:.0f} s.")
    return run.returncode


if __name__ == "__main__":
    sys.exit(main())
