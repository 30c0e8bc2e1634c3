"""`python -m local` on a stage of ours, in a process of its own, and clients of it."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.engine.dynamodb_local import free_port

from .process import usage_of
from .stage import Stage

_TOKEN = "hr_bench_not-a-secret"
_START_SECONDS = 30
_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A running server."""

    port: int
    pid: int

    def client(self) -> Client:
        return Client(self.port)

    @property
    def token(self) -> str:
        """That of the first admin."""
        return _TOKEN

    def cpu_seconds(self) -> float:
        """What its process has used so far."""
        return usage_of(self.pid).cpu_seconds


class Client:
    """One kept-alive connection."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._headers = {"Authorization": f"Bearer {_TOKEN}", "Content-Type": "application/json"}

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of the answer; RuntimeError for anything but a 2xx. `path` is below /v1."""
        content = body if isinstance(body, bytes) else json.dumps({} if body is None else body).encode()
        self.connection.request(method, f"/v1{path}", content, self._headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]!r}")
        return json.loads(text)


@contextmanager
def serve(target: Stage) -> Iterator[LocalServer]:
    """Serve a stage."""
    with _serving(target.environment()) as server:
        yield server


@contextmanager
def serve_folder(data: Path, engine: str) -> Iterator[LocalServer]:
    """Serve a data folder, with an engine of its own."""
    outside = {
        name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "HEADRACE_"))
    }
    with _serving(outside, "--data", str(data), "--engine", engine) as server:
        yield server


@contextmanager
def _serving(environment: Mapping[str, str], *options: str) -> Iterator[LocalServer]:
    port = free_port()
    environment = {**environment, "HEADRACE_PORT": str(port), "HEADRACE_TOKEN": _TOKEN}
    command = [sys.executable, "-m", "local", *options]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, cwd=_ROOT, env=environment, stdout=quiet, stderr=quiet)
    try:
        _await(process, port)
        yield LocalServer(port, process.pid)
    finally:
        process.terminate()
        process.wait(15)


def _await(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the local server ended with {process.returncode}")
        try:
            Client(port).connection.connect()
            return
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise RuntimeError("the local server did not start")
