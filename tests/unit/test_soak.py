"""A soak of a stated length plays what it says, and ends in time."""

from __future__ import annotations

import subprocess
import sys

import pytest


def test_who_names_a_kind_that_is_not_there_is_told_those_that_are() -> None:
    command = [sys.executable, "-m", "tests.soak", "--minutes", "1", "--only", "wrlds"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "there is no wrlds; there are worlds, weeks" in run.stderr


@pytest.mark.soak
def test_it_ends_in_time_and_tells_what_it_played() -> None:
    command = [
        sys.executable,
        "-m",
        "tests.soak",
        "--minutes",
        "0.3",
        "--only",
        "worlds,weeks",
        "--first",
        "5",
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 0
    assert "| worlds | " in run.stdout
    assert " | 5 to " in run.stdout
