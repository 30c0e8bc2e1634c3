"""The data folder of a local service: one process has it at a time, and says so in it.

lock         held by the process that has the folder; says which, and what it does
engine.db    the engine's file; while it is open, also engine.db-wal and engine.db-shm
engine.db.part    what a restore has not unpacked to its end
engine       where the engine is served, and with which keys, while it is: what `headrace-local env` prints
bucket/      large bodies, the journal and the archive
token, key, clock    the first admin token, the key of secrets, by how much the clock was moved
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from local.engine import server
from local.engine.core import Engine
from local.file_lock import try_lock
from local.unusable import Unusable

FILE = "engine.db"
RESTORING = "engine.db.part"
LOCK = "lock"
_WHERE = "engine"
_AMAZONS = Path("dynamodb") / "shared-local-instance.db"
_TRIES, _TRY_SECONDS = 10, 0.03  # who only asks for the holder has the lock for a moment


@dataclass(frozen=True)
class DataFolder:
    """A folder that this process has."""

    path: Path

    @property
    def is_amazons(self) -> bool:
        """Does it hold what DynamoDB Local stored, and nothing of the embedded engine's?"""
        return not (self.path / FILE).exists() and (self.path / _AMAZONS).exists()

    def engine(self, now_ms: Callable[[], int]) -> Engine:
        """Its engine, open. Raises Unusable."""
        if self.is_amazons:
            raise Unusable(
                f"{self.path} holds what DynamoDB Local stored ({_AMAZONS}). Run with --engine dynamodb-local to use "
                "it, or choose another folder with --data or HEADRACE_DATA."
            )
        if (self.path / RESTORING).exists():
            raise Unusable(f"A restore into {self.path} did not end: empty the folder, and restore again.")
        try:
            return Engine(self.path / FILE, now_ms)
        except sqlite3.Error as error:
            raise Unusable(
                f"{self.path / FILE} cannot be used ({error}): is the disk full or read-only, or the file damaged?"
            ) from None

    @contextlib.contextmanager
    def served(self, engine: Engine) -> Iterator[dict[str, str]]:
        """Serve the engine to other processes of this user. Yields environment variables with which boto3 finds it."""
        with server.serving(engine) as variables, told(self.path, variables):
            yield variables


@contextlib.contextmanager
def data_folder(path: Path, purpose: str) -> Iterator[DataFolder]:
    """Take the folder, and make it where it is missing. Who wants it meanwhile learns the `purpose`, as "serves on
    http://127.0.0.1:8700". Raises Unusable."""
    make_private(path)
    lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not _lock(lock):
            raise Unusable(
                f"{path} is in use by {holder(path)}. Stop that, or choose another folder with --data or HEADRACE_DATA."
            )
        os.ftruncate(lock, 0)
        os.write(lock, f"process {os.getpid()}, which {purpose}".encode())
        (path / _WHERE).unlink(missing_ok=True)  # of a process that was killed
        yield DataFolder(path)
    finally:
        os.close(lock)


def _lock(file: int) -> bool:
    for _ in range(_TRIES):
        if try_lock(file):
            return True
        time.sleep(_TRY_SECONDS)
    return False


@contextlib.contextmanager
def told(path: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """Say in the folder where its engine is, while it is there."""
    write_private(path / _WHERE, json.dumps(variables))
    try:
        yield
    finally:
        (path / _WHERE).unlink(missing_ok=True)


def engine_variables(path: Path) -> dict[str, str] | None:
    """Environment variables with which boto3 finds the engine of the process that has the folder; None: no process has
    it. Raises Unusable."""
    owner = holder(path)
    if owner is None:
        return None
    try:
        variables: dict[str, str] = json.loads((path / _WHERE).read_text())
    except FileNotFoundError:
        raise Unusable(
            f"The engine of {path} is not served at the moment: it starts, ends or is restored by {owner}. Try again."
        ) from None
    return variables


def holder(path: Path) -> str | None:
    """Which process has the folder, and what for; None: no process has it."""
    with contextlib.suppress(FileNotFoundError), (path / LOCK).open("rb+") as lock:
        if not try_lock(lock.fileno()):
            return lock.read().decode() or "another process"
    return None


def make_private(path: Path) -> None:
    """Make a folder that only its owner enters. Raises Unusable."""
    try:
        path.mkdir(0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Unusable(f"HEADRACE_DATA={path} cannot be used as a folder ({error.strerror}).") from None


def new_private(file: Path) -> BinaryIO:
    """A new file that only its owner reads, for writing. Raises OSError, also if there is anything of its name."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    return open(os.open(file, flags, 0o600), "wb")


def write_private(file: Path, text: str) -> None:
    """Write a file that only its owner reads, in one step."""
    draft = file.with_suffix(".new")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(text)
    draft.replace(file)
