"""The archive's jobs on one machine, as `make` starts them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.local_service import ROOT

_PYTHON = f"""#!{sys.executable}
import json, sys
print(json.dumps(sys.argv[1:]))
"""
_THERE = ("-o", ".venv/.runs", "-o", ".venv/.spark")


def make(job: str, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A job, started with a Python that prints its arguments."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(_PYTHON)
    python.chmod(0o755)
    return subprocess.run(
        ["make", *_THERE, job, f"BIN={python.parent}"],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("job", ["archive", "compact", "asof", "compare"])
def test_a_data_folder_may_have_any_name(tmp_path: Path, job: str) -> None:
    (tmp_path / "java").touch(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    data = tmp_path / "my 'data'; (of today)"
    arguments = json.loads(make(job, tmp_path, HEADRACE_DATA=str(data), PATH=path, JAVA_HOME="").stdout)
    assert arguments[arguments.index("--folder") + 1] == str(data / "bucket")
    if job == "archive":
        assert arguments[:6] == ["-m", "local", "env", "--data", str(data), "--"]


def test_a_machine_without_java_is_told_how_to_get_it(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "make"):
        (tools / name).symlink_to(str(shutil.which(name)))
    refused = make("archive", tmp_path, PATH=str(tools), JAVA_HOME="")
    assert refused.returncode == 2
    assert refused.stderr.startswith("The jobs of the archive need Java 17 or newer: apt-get install ")
