"""A soak of a stated length plays what it says, and ends in time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.soak import kinds
from tests.soak.__main__ import _report
from tests.soak.crew import Soak, Tally
from tests.soak.kinds import KINDS, Kind, Played


def test_what_falls_or_is_wrong_is_told_with_the_command_that_plays_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def falls(seed: int) -> Played:
        raise KeyError(seed)

    monkeypatch.setitem(KINDS, "weeks", Kind(falls, 1))
    result, counts = kinds.play("weeks", 7)
    assert "KeyError: 7" in result.complaints[0]
    tally = Tally(7, 8, counts=counts, failures=[(7, result)])
    report = _report(Soak({"weeks": tally}, unended=[]), 3)
    assert "| weeks | 1 | 7 to 7 | 0 | 0 | 1 |" in report
    assert "--only weeks --first 7" in report


def test_who_names_a_kind_that_is_not_there_is_told_those_that_are() -> None:
    command = [sys.executable, "-m", "tests.soak", "--minutes", "1", "--only", "wrlds"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "there is no wrlds; there are worlds, weeks" in run.stderr


def test_what_it_plays_does_not_prepare_the_environment_for_pytest() -> None:
    """That takes away what says where its engine is."""
    script = "import sys, tests.soak.kinds; sys.exit('tests.conftest' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


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
