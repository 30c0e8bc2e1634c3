"""Processes that others have started, and their end."""

from __future__ import annotations

import os
import time
from pathlib import Path


def is_running(pid: int) -> bool:
    """Is there such a process? An uncollected zombie does not run."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return not stat.parent.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_gone(pid: int) -> None:
    """Wait for the end of a process that is no child of ours."""
    deadline = time.monotonic() + 60
    while is_running(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        os.sched_yield()
