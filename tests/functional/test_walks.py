"""`python -m bench.walks` walks through the code with a message, and counts files and functions."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support.pages import ROOT

_ROW = re.compile(r"^\| (\w+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", re.M)


@pytest.mark.soak
def test_each_walk_is_walked_and_counted(engine: str) -> None:
    walks = ("produce", "receive", "push", "delayed")  # the other needs Spark
    command = [sys.executable, "-m", "bench.walks", "--only", *walks]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    rows = _ROW.findall(done.stdout)
    assert tuple(name for name, *_ in rows) == walks
    for _, *counts in rows:
        files, functions, moves, different_moves = map(int, counts)
        assert 10 < files < functions
        assert files <= different_moves + 1 <= moves + 1
