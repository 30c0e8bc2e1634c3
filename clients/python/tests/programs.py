"""Programs that use the client, each in a process of its own: to be killed, or to fork where no other thread is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from headrace import Headrace

SRC = Path(__file__).parents[1] / "src"
SECONDS = 120


def start(hr: Headrace, program: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a program whose `Headrace.from_env()` is a client of the same service."""
    environment = {
        **os.environ,
        "HEADRACE_URL": hr.transport.urls[0],
        "HEADRACE_TOKEN": hr.transport.token,
        "PYTHONPATH": str(SRC),
    }
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def run(hr: Headrace, program: str, *arguments: str) -> None:
    """Start a program and wait for its good end."""
    with start(hr, program, *arguments) as process:
        try:
            process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    assert process.returncode == 0
