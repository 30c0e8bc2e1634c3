"""How `make rehearse` tells what goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

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
