"""How `make rehearse` tells what goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.infra import ministack
from tests.infra.rehearse import STEPS, failure, follow, main

_RUN = """\
Installing MiniStack into .ministack (once, half a minute)
step 1 of 8: package and deploy
some warning of a tool
step 2 of 8: delay one, prepare one
FE
==================================== ERRORS ====================================
tests/infra/test_rehearsal.py:110: in a_test
    wait_until(lambda: False, 180)
E   AssertionError: not within 180 s
E   assert 3 < 2
"""


def test_steps_are_shown_with_their_seconds_and_everything_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "build" / "rehearsal.log"
    follow(_RUN.splitlines(keepends=True), log, iter([0.4, 31.0, 75.2]))
    assert capsys.readouterr().out.splitlines() == [
        "    0 s  Installing MiniStack into .ministack (once, half a minute)",
        "   31 s  step 1 of 8: package and deploy",
        "   75 s  step 2 of 8: delay one, prepare one",
    ]
    assert log.read_text() == _RUN


def test_a_failure_is_one_line_with_the_step_the_reason_and_what_to_do() -> None:
    text = failure(_RUN, Path("build/rehearsal.log"))
    assert text.startswith(
        "The rehearsal failed at step 2 of 8 (delay one, prepare one): AssertionError: not within 180 s."
    )
    assert "build/rehearsal.log" in text
    assert "make rehearse" in text
    assert "\n" not in text


def test_a_name_that_no_part_has_is_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["rehearse", "-k", "usd"])
    with pytest.raises(SystemExit):
        main()
    out, err = capsys.readouterr()
    assert out == ""
    assert "'usd'" in err
    assert all(part in err for part in STEPS)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that HEADRACE_MINISTACK names, which nothing is downloaded into."""

    folder = tmp_path / "there"

    def run(*_: Any, **__: Any) -> None:
        folder.mkdir(exist_ok=True)

    monkeypatch.setenv("HEADRACE_MINISTACK", str(folder))
    monkeypatch.setattr(subprocess, "run", run)
    return folder


@pytest.mark.parametrize("file", ["thesis.txt", "requirements.txt", ".hidden", "pyvenv.cfg"])
def test_a_folder_with_something_of_somebody_is_not_replaced_by_ministack(home: Path, file: str) -> None:
    """A virtual environment may be anybody's, too, made in place beside a project's files."""
    home.mkdir()
    (home / file).write_text("mine")
    with pytest.raises(FileExistsError, match=r"/there .*HEADRACE_MINISTACK.*\.$"):
        ministack.installed()
    assert {each.name: each.read_text() for each in home.iterdir()} == {file: "mine"}
