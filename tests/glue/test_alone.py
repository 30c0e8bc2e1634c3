"""No two jobs write an archive at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from glue_jobs import archive, compact
from glue_jobs.alone import Busy, alone
from glue_jobs.arguments import FAILED

ROOT = Path(__file__).parents[2]
HOLDER = "import sys; from pathlib import Path; from glue_jobs.alone import alone\n"
HOLDER += "with alone(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"


@pytest.mark.parametrize("main", [archive.main, compact.main])
def test_a_job_that_finds_another_at_work_touches_nothing(
    main: Callable[[Sequence[str]], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with alone(tmp_path):
        assert main(["--folder", str(tmp_path), "--bucket", "headrace"]) == FAILED
    assert "Another job is writing this archive" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_who_is_killed_holds_nothing(tmp_path: Path) -> None:
    held = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(held, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(Busy), alone(tmp_path):
            pass
        holder.kill()
    with alone(tmp_path):
        pass


def test_archives_of_their_own_are_written_at_once_and_one_after_another_too(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with alone(tmp_path), alone(tmp_path / "a"), alone(None), alone(None):
        pass
    with alone(tmp_path):
        pass
