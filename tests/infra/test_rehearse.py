"""How `make rehearse` tells what goes on."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.infra import ministack
from tests.infra.rehearse import failure, follow

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


def test_a_run_that_did_not_begin_fails_at_its_start() -> None:
    assert failure("", Path("log")).startswith("The rehearsal failed at its start: pytest could not run it.")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that HEADRACE_MINISTACK names, which nothing is downloaded into."""

    def run(*_: Any, **__: Any) -> None:
        home.mkdir(exist_ok=True)

    home = tmp_path / "there"
    monkeypatch.setenv("HEADRACE_MINISTACK", str(home))
    monkeypatch.setattr(subprocess, "run", run)
    return home


@pytest.mark.parametrize("file", ["thesis.txt", "requirements.txt", ".hidden"])
def test_a_folder_with_something_of_somebody_is_not_replaced_by_ministack(home: Path, file: str) -> None:
    home.mkdir()
    (home / file).write_text("mine")
    with pytest.raises(FileExistsError, match=r"/there .*HEADRACE_MINISTACK.*\.$"):
        ministack.installed()
    assert {each.name: each.read_text() for each in home.iterdir()} == {file: "mine"}


@pytest.mark.parametrize("files", [None, [], ["pyvenv.cfg", "old"], ["pyvenv.cfg", "requirements.txt"]])
def test_a_folder_that_is_new_empty_or_ministacks_own_becomes_the_present_one(
    home: Path, files: list[str] | None
) -> None:
    for file in files or ():
        home.mkdir(exist_ok=True)
        (home / file).write_text("old")
    if files == []:
        home.mkdir()
    assert ministack.installed() == home / "bin"
    assert [each.name for each in home.iterdir()] == ["requirements.txt"]
    assert (home / "requirements.txt").read_text() != "old"
