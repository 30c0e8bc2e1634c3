"""`python -m local` or `headrace-local` in a process of its own, and a way to call it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class LocalService:
    """One that serves."""

    url: str
    token: str

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON answer to a call; None where it is empty. Raises HTTPError."""
        request = urllib.request.Request(
            f"{self.url}/v1{path}",
            json.dumps({} if body is None else body).encode(),
            {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.loads(answer.read() or b"null")


@contextlib.contextmanager
def serving(
    *options: str, command: tuple[str, ...] = (sys.executable, "-m", "headrace_local"), **environment: str
) -> Iterator[LocalService]:
    """Run it on a free port; it ends when the context does, or this process. It keeps nothing, unless HEADRACE_DATA
    gives it a folder."""
    kept = () if "HEADRACE_DATA" in environment else ("--ephemeral",)
    own_environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    with subprocess.Popen(
        [*command, "--port", "0", "--json", "--until-stdin-ends", *kept, *options],
        cwd=ROOT,
        env=own_environment | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin
        assert process.stdout
        with process.stdin:
            yield LocalService(**json.loads(process.stdout.readline()))


def refusal(*command: str, **environment: str) -> str:
    """What a start that fails says on standard error, which is all that it says."""
    process = subprocess.run(
        [*command, "--port", "0", "--until-stdin-ends"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
        | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr.count("\n") == 1, process.stderr
    return process.stderr
