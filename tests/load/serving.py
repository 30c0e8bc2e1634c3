"""`python -m local` on tables of its own, for a while, and its API."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

from local.engine.dynamodb_local import free_port
from tests.support.http import Client

_ROOT = Path(__file__).parents[2]
_HOST = "127.0.0.1"
_TOKEN = "hr_load_0123456789abcdef"
_ANSWER_SECONDS = 60.0
_STOP_SECONDS = 120.0
_START_SECONDS = 120.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Wire:
    """tests.support.http.Gateway over a socket; each call has a connection of its own."""

    port: int

    def handle(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        connection = HTTPConnection(_HOST, self.port, timeout=_ANSWER_SECONDS)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), answer.read()
        finally:
            connection.close()


@contextmanager
def serving(folder: Path, prefix: str, **environment: str) -> Iterator[Client]:
    """Serve from `folder`; what the server writes is in its files `output` and `errors`."""
    port = free_port()
    settings = {
        "HEADRACE_PORT": str(port),
        "HEADRACE_DATA": str(folder / "data"),
        "HEADRACE_TOKEN": _TOKEN,
        "HEADRACE_PREFIX": prefix,
        **environment,
    }
    command = [sys.executable, "-m", "local"]
    # Not a pipe: without a reader it fills up, and then the server waits in its log.
    with (folder / "output").open("w") as output, (folder / "errors").open("w") as errors:
        process = subprocess.Popen(
            command, cwd=_ROOT, env=os.environ | settings, stdout=output, stderr=errors
        )
        try:
            _await(process, port)
            yield Client(Wire(port), _TOKEN)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(_STOP_SECONDS)


def _await(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, "it has ended"
        try:
            socket.create_connection((_HOST, port), timeout=1).close()
            return
        except ConnectionRefusedError:
            time.sleep(_POLL_SECONDS)
    raise AssertionError("it did not start")
