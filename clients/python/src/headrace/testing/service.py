"""A Headrace of one's own: `headrace-local` in a process that ends with this one."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_INSTALL = "The service is missing: pip install headrace-local (it needs Python 3.11 or newer)."


class ServiceMissing(Exception):
    """It cannot be started; the text says what to do."""


@dataclass(frozen=True)
class Service:
    """One that serves, with everything in memory."""

    url: str
    token: str


@contextlib.contextmanager
def serving(*options: str) -> Iterator[Service]:
    """Start `headrace-local` on a free port, with everything in memory, and end it. `options` are more of its own.
    Raises ServiceMissing."""
    package = importlib.util.find_spec("headrace_local")
    if package is None or package.origin is None:
        raise ServiceMissing(_INSTALL)
    command = [sys.executable, str(Path(package.origin).parent)]
    command += ["--port", "0", "--json", "--until-stdin-ends", "--ephemeral", *options]
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                log.seek(0)
                raise ServiceMissing(f"The service did not start: {log.read().decode(errors='replace')}")
            yield Service(**json.loads(line))
        finally:
            process.kill()  # it has nothing to put in order
