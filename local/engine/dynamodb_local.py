"""Runs DynamoDB Local for as long as this process lives.

The engine listens on every interface of the machine and asks for no password (it has no option for either): keep
to data you could publish.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from local.engine.fetch import EngineError, fetch, require
from local.file_lock import try_lock
from local.free_port import free_port

_START_SECONDS = 60.0
_STOP_SECONDS = 5.0
_LOCK_SECONDS = 15.0
_POLL_SECONDS = 0.02
_LOG_TAIL_BYTES = 2000
# A collector with threads of its own would take a fifth of the engine's processor time.
_ALWAYS = ("-Xmx512m", "-XX:+UseSerialGC")
# The second compiler costs more than it gives for the first 60,000 calls.
_FOR_FEW_CALLS = ("-XX:TieredStopAtLevel=1",)
_FIRST_FREE_FD = 10  # the shell names descriptors with one digit: keep the lock's out of its way
# The shell becomes java; what it leaves behind waits for the end of a pipe whose other end only our process holds,
# which ends however we die. Unlike prctl's death signal this also works when a thread that starts an engine ends.
_LAUNCH = 'umask 077; exec 3<&0; (read -r _ <&3; kill -TERM $$) & exec "$@" 3<&- </dev/null'


class DynamoDBLocal:
    """A running DynamoDB Local, in memory or durable in `data_dir`. A context manager."""

    def __init__(
        self, data_dir: Path | None = None, port: int | None = None, *, is_busy: bool = False
    ) -> None:
        """`port`: None for any free one. `is_busy`: it will serve very many calls, and is slower to start."""
        self._data_dir = data_dir
        self._port = port
        self._is_busy = is_busy
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline: int | None = None

    @property
    def endpoint(self) -> str:
        """Its URL, once started."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """Its process id, once started."""
        assert self._process is not None, "the engine is not running"
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start, and return when it answers. Waits for an engine of a process just killed to let go of the
        data. Raises EngineError."""
        java, home = require("java"), fetch()
        with contextlib.ExitStack() as stack:
            lock = self._lock()
            if lock is not None:
                stack.callback(os.close, lock)  # the engine keeps its own: the data is locked while it lives
            log = stack.enter_context(tempfile.TemporaryFile())
            self._port = self._port or free_port()
            self._launch(self._command(java, home), lock, log)
            try:
                self._wait_until_it_answers(log)
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """Stop it; what it acknowledged stays in `data_dir`. Nothing happens if it is not running."""
        if self._process is None or self._lifeline is None:
            return
        signal_group(self._process, signal.SIGTERM)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            signal_group(self._process, signal.SIGKILL)
            self._process.wait()
        os.close(self._lifeline)
        self._process = self._lifeline = None

    def _lock(self) -> int | None:
        if self._data_dir is None:
            return None
        self._data_dir.mkdir(parents=True, exist_ok=True)
        import fcntl  # here: Windows has none

        first = os.open(self._data_dir / "engine.lock", os.O_RDWR | os.O_CREAT, 0o600)
        lock = fcntl.fcntl(first, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE_FD)
        os.close(first)
        deadline = time.monotonic() + _LOCK_SECONDS
        while not try_lock(lock):
            if time.monotonic() > deadline:
                os.close(lock)
                raise EngineError(f"Another engine is using {self._data_dir}. Stop it, or set HEADRACE_DATA.")
            time.sleep(_POLL_SECONDS)
        return lock

    def _command(self, java: str, home: Path) -> list[str]:
        place = ["-inMemory"] if self._data_dir is None else ["-dbPath", str(self._data_dir.resolve())]
        return [
            java,
            *_ALWAYS,
            *(() if self._is_busy else _FOR_FEW_CALLS),
            f"-Djava.library.path={home / 'DynamoDBLocal_lib'}",
            "-jar",
            str(home / "DynamoDBLocal.jar"),
            "-disableTelemetry",
            "-sharedDb",
            "-port",
            str(self._port),
            *place,
        ]

    def _launch(self, command: list[str], lock: int | None, log: IO[bytes]) -> None:
        ending, self._lifeline = os.pipe()
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _LAUNCH, "sh", *command],
            stdin=ending,
            stdout=log,
            stderr=log,
            pass_fds=() if lock is None else (lock,),
            start_new_session=True,  # Ctrl-C is for us: the engine goes last
        )
        os.close(ending)

    def _wait_until_it_answers(self, log: IO[bytes]) -> None:
        assert self._process is not None, "launched"
        assert self._port is not None, "chosen"
        deadline = time.monotonic() + _START_SECONDS
        while self._process.poll() is None:
            if _answers(self._port):
                return
            if time.monotonic() > deadline:
                raise EngineError(f"DynamoDB Local is silent after {_START_SECONDS:.0f} s.\n{_log_tail(log)}")
            time.sleep(_POLL_SECONDS)
        raise EngineError(f"DynamoDB Local stopped at its start (port {self._port}):\n{_log_tail(log)}")


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/")
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True


def signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to a process that was started in a session of its own, and to its child processes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _log_tail(log: IO[bytes]) -> str:
    log.seek(0, os.SEEK_END)
    log.seek(max(0, log.tell() - _LOG_TAIL_BYTES))
    return log.read().decode(errors="replace").strip()


def main() -> int:
    """Fetch the engine and print its folder."""
    argparse.ArgumentParser(
        prog="python -m local.engine.dynamodb_local",
        description="Fetch DynamoDB Local (once) and print the folder it is in. DYNAMODB_LOCAL_DIR: use the one "
        "there. HEADRACE_ENGINE_CACHE: where to keep it (~/.cache/headrace/…).",
    ).parse_args()
    try:
        require("java")
        print(fetch())
    except EngineError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
