"""Messages on disk until they are sent: one SQLite file, which survives the process and is sent in order."""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakSet

import msgspec

from .moments import Moment

_SCHEMA = """
CREATE TABLE IF NOT EXISTS message (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    topic      TEXT NOT NULL,
    fields     BLOB NOT NULL,
    request    TEXT,
    wall       REAL, -- of the first try, as are `up` and `run`
    up         REAL,
    run        TEXT
);
CREATE TABLE IF NOT EXISTS refused (
    number INTEGER PRIMARY KEY,
    topic  TEXT NOT NULL,
    fields BLOB NOT NULL,
    reason TEXT NOT NULL
)
"""


_SPOOLS: WeakSet[Spool] = WeakSet()
_HELD: list[Spool] = []
_FORKING = threading.Lock()

_ROWS = "SELECT number, topic, fields, request, wall, up, run FROM message"


@dataclass(kw_only=True, frozen=True)
class Waiting:
    """Messages of one topic that go together. `request` and `first_sent` are known where they were sent before."""

    numbers: tuple[int, ...]
    topic: str
    messages: Sequence[msgspec.Raw]
    request: str | None = None
    first_sent: Moment | None = None


@dataclass(frozen=True)
class Kept:
    """A message in the file. `reason`: why it was refused for good."""

    number: int
    topic: str
    message: msgspec.Raw
    reason: str | None = None


class Spool:
    """Keeps messages in a file. Safe for threads; of one process at a time: another is refused."""

    def __init__(self, path: str | Path) -> None:
        """Raises BlockingIOError where another process has the file open, or a producer of this one that was closed and
        whose last send has not ended; PermissionError or IsADirectoryError where it cannot be written, ValueError where
        it is no spool."""
        self._lock = threading.Lock()
        _make(os.path.realpath(path))
        try:
            self._file = _opened(path)
        except sqlite3.OperationalError as error:
            raise BlockingIOError(
                f"The spool {path} is in use ({error}): by another process, or by a producer of this one that was "
                "closed and whose last send has not ended."
            ) from error
        except sqlite3.DatabaseError as error:
            raise ValueError(f"{path} is no spool ({error}).") from error
        with _FORKING:
            _SPOOLS.add(self)

    def add(self, topic: str, text: bytes) -> int:
        """Keep a message (as JSON); it is on disk when this returns. Its number in the file."""
        with self._lock:
            row = self._file.execute("INSERT INTO message (topic, fields) VALUES (?, ?)", (topic, text))
            assert row.lastrowid is not None
            return row.lastrowid

    def next(self, most: int, most_bytes: int) -> Waiting | None:
        """The oldest message, and those behind it of its topic that go along; where it was sent before, its whole
        request, however many they are now allowed to be. None: there is nothing."""
        with self._lock:
            rows = self._file.execute(f"{_ROWS} ORDER BY number LIMIT ?", (most,)).fetchall()
            if rows and rows[0][3] is not None:
                rows = self._file.execute(
                    f"{_ROWS} WHERE request = ? ORDER BY number", rows[0][3:4]
                ).fetchall()
        if not rows:
            return None
        _, topic, _, request, *first_sent = rows[0]
        batch: list[tuple[Any, ...]] = []
        size = 0
        for row in rows:
            size += len(row[2]) + 1
            if (row[1], row[3]) != (topic, request) or (batch and size > most_bytes and request is None):
                break
            batch.append(row)
        numbers = tuple(row[0] for row in batch)
        return Waiting(
            numbers=numbers,
            topic=topic,
            messages=[msgspec.Raw(row[2]) for row in batch],
            request=request,
            first_sent=Moment(*first_sent) if request is not None else None,
        )

    def begin(self, numbers: Sequence[int], request: str, first_sent: Moment) -> None:
        """Note under which name messages are sent, before they are: what comes after a crash uses the same."""
        rows = [(request, *first_sent, number) for number in numbers]
        with self._change():
            self._file.executemany(
                "UPDATE message SET request = ?, wall = ?, up = ?, run = ? WHERE number = ?", rows
            )

    def forget(self, numbers: Sequence[int]) -> None:
        """Let messages be sent as if for the first time."""
        rows = [(number,) for number in numbers]
        with self._change():
            self._file.executemany("UPDATE message SET request = NULL WHERE number = ?", rows)

    def remove(self, numbers: Sequence[int], reasons: Mapping[int, str] | None = None) -> None:
        """They are sent; or they were refused for good, for these reasons, with which they are put aside."""
        refusals = [(reason, number) for number, reason in (reasons or {}).items()]
        with self._change():
            self._file.executemany(
                "INSERT INTO refused SELECT number, topic, fields, ? FROM message WHERE number = ?", refusals
            )
            self._file.executemany("DELETE FROM message WHERE number = ?", [(number,) for number in numbers])

    def readmit(self) -> int:
        """Let what was refused wait again, behind all others; how many it were."""
        with self._change():
            count = self._file.execute(
                "INSERT INTO message (topic, fields) SELECT topic, fields FROM refused ORDER BY number"
            ).rowcount
            self._file.execute("DELETE FROM refused")
            return count

    def contents(self, most: int) -> list[Kept]:
        """What waits, in its order, and what was refused."""
        with self._lock:
            rows = self._file.execute(
                "SELECT * FROM (SELECT number, topic, fields, NULL FROM message ORDER BY number) "
                "UNION ALL SELECT number, topic, fields, reason FROM refused LIMIT ?",
                (most,),
            ).fetchall()
        return [Kept(number, topic, msgspec.Raw(fields), reason) for number, topic, fields, reason in rows]

    @contextmanager
    def _change(self) -> Iterator[None]:
        """All of what is done inside, or nothing: on a full disk, say."""
        with self._lock, self._file:
            self._file.execute("BEGIN")
            yield

    def count(self) -> int:
        """How many messages wait."""
        with self._lock:
            count: int = self._file.execute("SELECT count(*) FROM message").fetchone()[0]
            return count

    def count_refused(self) -> int:
        """How many messages were refused for good."""
        with self._lock:
            count: int = self._file.execute("SELECT count(*) FROM refused").fetchone()[0]
            return count

    def leave_to_parent(self) -> None:
        """Let go of what a forked child inherited; the parent keeps the file. Before this, SQLite takes the parent's
        lock for one of the child's own, and opens the file no more."""
        with self._lock:
            with suppress(sqlite3.ProgrammingError):  # it was closed before the fork
                # Else closing would remove the parent's journal.
                self._file.execute("PRAGMA journal_mode = OFF")
            self._file.close()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()


def _make(path: str) -> None:
    """Only the file's owner may read messages. What SQLite puts beside the file has the file's mode."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:  # not opened: who closes a file gives up all locks that this process has on it
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path) from None
        if not os.access(path, os.R_OK | os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path) from None


def _opened(path: str | Path) -> sqlite3.Connection:
    """The file, locked for this process."""
    file = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=0.2)
    try:
        file.execute("PRAGMA locking_mode = EXCLUSIVE")
        file.execute("PRAGMA synchronous = FULL")
        file.executescript(_SCHEMA)
        file.execute("BEGIN IMMEDIATE")
        file.execute("COMMIT")
    except sqlite3.Error:
        file.close()
        raise
    return file


def _hold_all() -> None:
    """What a thread is doing in a file during a fork would never be over in the child."""
    _FORKING.acquire()
    _HELD[:] = _SPOOLS
    for spool in _HELD:
        spool._lock.acquire()


def _release_all() -> None:
    for spool in _HELD:
        spool._lock.release()
    _HELD.clear()
    _FORKING.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_all, after_in_parent=_release_all, after_in_child=_release_all)
