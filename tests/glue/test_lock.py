"""No two jobs write an archive at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from glue_jobs import archive, compact
from glue_jobs.common.arguments import FAILED
from glue_jobs.common.job import Busy, exclusive

ROOT = Path(__file__).parents[2]
HOLDER = "import sys; from pathlib import Path; from glue_jobs.common.job import exclusive\n"
HOLDER += "with exclusive(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"


@pytest.mark.parametrize("main", [archive.main, compact.main])
def test_a_job_that_finds_another_at_work_touches_nothing(
    main: Callable[[Sequence[str]], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with exclusive(tmp_path):
        assert main(["--folder", str(tmp_path), "--bucket", "headrace"]) == FAILED
    assert "Another job is writing this archive" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_who_is_killed_holds_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(Busy), exclusive(tmp_path):
            pass
        holder.kill()
    with exclusive(tmp_path):
        pass


def test_archives_of_their_own_are_written_at_once_and_one_after_another_too(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with exclusive(tmp_path), exclusive(tmp_path / "a"), exclusive(None), exclusive(None):
        pass
    with exclusive(tmp_path):
        pass
