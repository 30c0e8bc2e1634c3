"""What is in a packaged template, and what cfn-lint says of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def resources(file: Path, kind: str = "") -> dict[str, Any]:
    """Those of a kind, by their names."""
    all_resources = json.loads(file.read_text())["Resources"]
    return {name: each for name, each in all_resources.items() if each["Type"].startswith(kind)}


def lint(*files: Path) -> tuple[int, str]:
    """The exit code and the output of cfn-lint."""
    command = [str(Path(sys.executable).with_name("cfn-lint")), *map(str, files)]
    run = subprocess.run(command, capture_output=True, text=True)
    return run.returncode, run.stdout + run.stderr
