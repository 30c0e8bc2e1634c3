"""Importing app.py in a fresh process, beside importing chalice and botocore alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from .figures import Figure, at_most, without_target
from .stage import say

_ROUNDS = 9
_TOP = 15
_ROOT = Path(__file__).resolve().parent.parent
_CODE = """
import time
clock, cpu = time.perf_counter(), time.process_time()
import {modules}
{then}
print(time.perf_counter() - clock, time.process_time() - cpu)
"""
_ALONE = "chalice, botocore.session"
_ADAPTERS = "from chalicelib import wiring; wiring.deps().adapters"
_LINE = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \| +(\S+)")


def measure(endpoint: str, verbose: bool = False) -> Iterator[Figure]:
    """The ratio, by CPU time and by the clock; in turns, so that a busy machine slows both alike."""
    say(f"cold: {2 * _ROUNDS} fresh processes")
    _import_times("app"), _import_times(_ALONE)  # compiles what is not compiled yet
    rounds = [(_import_times("app"), _import_times(_ALONE)) for _ in range(_ROUNDS)]
    ours, alone = (
        tuple(median(times) for times in zip(*side, strict=True)) for side in zip(*rounds, strict=True)
    )
    clock = f"by the clock {ours[0] / alone[0]:.2f} x"
    yield at_most("cold import of app.py", ours[1] / alone[1], 1.3, "x chalice and botocore alone", clock)
    yield without_target(
        "cold import of app.py, CPU time", f"{ours[1] * 1000:.0f} ms of {alone[1] * 1000:.0f} ms"
    )
    ready = median(_import_times("app", _ADAPTERS)[1] for _ in range(_ROUNDS))
    yield without_target(
        "the same, and the clients made that the first request needs",
        f"{ready * 1000:.0f} ms",
        f"{ready / alone[1]:.2f} x",
    )
    if verbose:
        say("largest imports of app.py, by their own time:\n" + _offenders())


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True, check=True)


def _import_times(modules: str, then: str = "") -> tuple[float, float]:
    """Seconds by the clock and of CPU."""
    clock, cpu = _run("-c", _CODE.format(modules=modules, then=then)).stdout.split()
    return float(clock), float(cpu)


def _offenders() -> str:
    lines = [_LINE.match(line) for line in _run("-X", "importtime", "-c", "import app").stderr.splitlines()]
    offenders = [(int(line[1]), int(line[2]), line[3]) for line in lines if line]
    top = sorted(offenders, reverse=True)[:_TOP]
    return "\n".join(
        f"    {own / 1000:6.1f} ms, with what it imports {total / 1000:6.1f} ms  {name}"
        for own, total, name in top
    )
