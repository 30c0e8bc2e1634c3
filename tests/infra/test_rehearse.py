"""How `make rehearse` shows its progress."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import pytest

from tests.infra import test_rehearsal
from tests.infra.rehearse import STEPS, failure, follow, main

_RUN = """\
some line before
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
    follow(_RUN.splitlines(keepends=True), log, iter([0.4, 31.0]))
    assert capsys.readouterr().out.splitlines() == [
        "    0 s  step 1 of 8: package and deploy",
        "   31 s  step 2 of 8: delay one, prepare one",
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


def test_a_failure_tells_which_steps_a_part_has() -> None:
    text = failure(_RUN, Path("log"))
    assert "ARGS='-k used' (steps 1 to 7) or ARGS='-k deleted' (steps 8 to 9)" in text


@pytest.mark.parametrize("part", STEPS)
def test_a_parts_steps_are_those_of_its_test(part: str) -> None:
    [test] = [
        each for name, each in vars(test_rehearsal).items() if name.startswith("test_") and part in name
    ]
    assert tuple(re.findall(r'^ +step\("(.*)"\)', inspect.getsource(test), re.MULTILINE)) == STEPS[part]


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


def test_a_run_that_did_not_begin_fails_at_its_start() -> None:
    assert failure("", Path("log")).startswith("The rehearsal failed at its start: pytest could not run it.")
