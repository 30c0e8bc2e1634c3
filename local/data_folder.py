"""The data folder of a local service: one process has it at a time, and says so in it.

lock         held by the process that has the folder; says which, and where it serves
engine.db    the engine's file; while it is open, also engine.db-wal and engine.db-shm
engine       where the engine is served, and with which keys, while it is: what `headrace-local env` prints
bucket/      large bodies, the journal and the archive
token, key, clock    the first admin token, the key of secrets, by how much the clock was moved
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from local.engine import server
from local.engine.core import Engine
from local.unusable import Unusable

FILE = "engine.db"
_AMAZONS = Path("dynamodb") / "shared-local-instance.db"


@dataclass(frozen=True)
class DataFolder:
    """A folder that this process has."""

    path: Path

    def engine(self, now_ms: Callable[[], int]) -> Engine:
        """Its engine, open. Raises Unusable."""
        if not (self.path / FILE).exists() and (self.path / _AMAZONS).exists():
            raise Unusable(
                f"{self.path} holds what DynamoDB Local stored ({_AMAZONS}). Run with --engine dynamodb-local to use "
                "it, or choose another folder with --data or HEADRACE_DATA."
            )
        try:
            return Engine(self.path / FILE, now_ms)
        except sqlite3.Error as error:
            raise Unusable(
                f"{self.path / FILE} cannot be used ({error}): is the disk full or read-only, or the file damaged?"
            ) from None

    @contextlib.contextmanager
    def served(self, engine: Engine) -> Iterator[dict[str, str]]:
        """Serve the engine to other processes of this user. What tells boto3 where it is: variables of the
        environment."""
        with server.serving(engine) as variables, told(self.path, variables):
            yield variables


@contextlib.contextmanager
def data_folder(path: Path, url: str) -> Iterator[DataFolder]:
    """Take the folder, and make it where it is missing. `url` is told to whoever wants it meanwhile. Raises
    Unusable."""
    make_private(path)
    lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unusable(
                f"{path} is in use by {holder(path)}. Stop that, or choose another folder with --data or HEADRACE_DATA."
            ) from None
        os.ftruncate(lock, 0)
        os.write(lock, f"process {os.getpid()}, which serves on {url}".encode())
        yield DataFolder(path)
    finally:
        os.close(lock)


@contextlib.contextmanager
def told(path: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """Say in the folder where its engine is, while it is there."""
    write_private(path / "engine", json.dumps(variables))
    try:
        yield
    finally:
        (path / "engine").unlink(missing_ok=True)


def holder(path: Path) -> str | None:
    """Which process has the folder; None: none does."""
    with contextlib.suppress(FileNotFoundError), (path / "lock").open("rb+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return lock.read().decode() or "another process"
    return None


def make_private(path: Path) -> None:
    """Make a folder that only its owner enters. Raises Unusable."""
    try:
        path.mkdir(0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Unusable(f"HEADRACE_DATA={path} cannot be used as a folder ({error.strerror}).") from None


def write_private(file: Path, text: str) -> None:
    """Write a file that only its owner reads, in one step."""
    draft = file.with_suffix(".new")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(text)
    draft.replace(file)
