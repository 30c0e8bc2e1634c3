"""The data folder of a local service: one process has it at a time, and says so in it.

lock.db, lock    held by the process that has the folder; says which, and what it does
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from local import Unusable
from local.engine.core import Engine

FILE = "engine.db"
RESTORING = "engine.db.part"
LOCK = "lock.db"
HOLDER = "lock"
WHERE = "engine"
_AMAZONS = Path("dynamodb") / "shared-local-instance.db"
_LOCK_SECONDS = 0.3  # who only asks for the holder has the lock for a moment


def is_amazons(path: Path) -> bool:
    """Does a folder hold what DynamoDB Local stored, and nothing of the embedded engine's?"""
    return not (path / FILE).exists() and (path / _AMAZONS).exists()


def open_engine(path: Path, now_ms: Callable[[], int]) -> Engine:
    """The engine of a folder that this process has. Raises Unusable."""
    if is_amazons(path):
        raise Unusable(
            f"{path} holds what DynamoDB Local stored ({_AMAZONS}). Run with --engine dynamodb-local to use "
            "it, or choose another folder with --data or HEADRACE_DATA."
        )
    if (path / RESTORING).exists():
        raise Unusable(f"A restore into {path} did not end: empty the folder, and restore again.")
    try:
        return Engine(path / FILE, now_ms)
    except sqlite3.Error as error:
        raise Unusable(
            f"{path / FILE} cannot be used ({error}): is the disk full or read-only, or the file damaged?"
        ) from None


@contextlib.contextmanager
def data_folder(path: Path, purpose: str) -> Iterator[None]:
    """Take the folder; where it is missing, make it for its owner. Who wants it meanwhile learns the `purpose`, as
    "serves on http://127.0.0.1:8700". Raises Unusable."""
    try:
        path.mkdir(0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Unusable(f"HEADRACE_DATA={path} cannot be used as a folder ({error.strerror}).") from None
    with contextlib.closing(_lock(path)) as lock:
        if not _take(lock):
            raise Unusable(
                f"{path} is in use by {holder(path)}. Stop that, or choose another folder with --data or HEADRACE_DATA."
            )
        write_private(path / HOLDER, f"process {os.getpid()}, which {purpose}")
        (path / WHERE).unlink(missing_ok=True)  # of a process that was killed
        yield


def _lock(path: Path) -> sqlite3.Connection:
    """What takes the lock, on each platform: the kernel takes it back when its process ends, however that dies."""
    os.close(os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o600))
    return sqlite3.connect(path / LOCK, timeout=_LOCK_SECONDS, isolation_level=None)


def _take(lock: sqlite3.Connection) -> bool:
    try:
        lock.execute("PRAGMA journal_mode = OFF")  # nothing is written
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError:
        return False
    return True


def engine_variables(path: Path) -> dict[str, str] | None:
    """Environment variables with which boto3 finds the engine of the process that has the folder; None: no process has
    it. Raises Unusable."""
    if (owner := holder(path)) is None:
        return None
    try:
        return dict(json.loads((path / WHERE).read_text()))
    except FileNotFoundError:
        raise Unusable(
            f"The engine of {path} is not served at the moment: it starts, ends or is restored by {owner}. Try again."
        ) from None


def holder(path: Path) -> str | None:
    """Which process has the folder, and what for; None: no process has it."""
    if not (path / LOCK).exists():
        return None
    with contextlib.closing(_lock(path)) as lock:
        return None if _take(lock) else (path / HOLDER).read_text()


def new_private(file: Path) -> BinaryIO:
    """A new file that only its owner reads, for writing. Raises OSError, also if there is anything of its name."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    return open(os.open(file, flags, 0o600), "wb")


def write_private(file: Path, content: str | bytes) -> None:
    """Write a file that only its owner reads, in one step, so that a crash leaves all of it or none."""
    draft = file.with_suffix(".new")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        out.write(content.encode() if isinstance(content, str) else content)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(file)


def read_token(file: Path) -> str | None:
    """The admin token made at the first start, which is kept for the following ones; None if there is none. Raises
    Unusable."""
    try:
        return file.read_text().strip() or None
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise Unusable(f"{file} cannot be used ({why}): it keeps the admin token.") from None
