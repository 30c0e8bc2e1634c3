"""The archive's jobs on one machine, as `make` starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.local_service import ROOT

_PYTHON = f"""#!{sys.executable}
import json, os, sys
print(json.dumps([sys.argv[1:], os.environ.get("AWS_ENDPOINT_URL_DYNAMODB")]))
"""


@pytest.mark.parametrize("job", ["archive", "compact", "asof", "compare"])
def test_a_data_folder_may_have_any_name(tmp_path: Path, job: str) -> None:
    data = tmp_path / "my 'data'; (of today)"
    data.mkdir()
    (data / "engine").write_text("http://127.0.0.1:1")
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(_PYTHON)
    python.chmod(0o755)
    there = ("-o", ".venv/.runs", "-o", ".venv/.spark")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    process = subprocess.run(
        ["make", *there, job, f"BIN={python.parent}"],
        cwd=ROOT,
        env=environment | {"HEADRACE_DATA": str(data)},
        capture_output=True,
        text=True,
        check=True,
    )
    arguments, endpoint = json.loads(process.stdout)
    assert arguments[arguments.index("--folder") + 1] == str(data / "bucket")
    assert endpoint == ("http://127.0.0.1:1" if job == "archive" else None)
