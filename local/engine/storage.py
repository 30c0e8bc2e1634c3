"""The SQLite file: one thread writes at a time, and what waits meanwhile is written together."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from .errors import out_of_order

T = TypeVar("T")
Connection = sqlite3.Connection

_TOGETHER = 200  # writes in one commit
_STATEMENTS = 400  # each table has a dozen
_WAL_BYTES = 64 << 20  # what a large moment leaves behind
_FREE_PAGES = 2000  # given back to the disk at a time


class _Job:
    """One write: its work, and its result."""

    def __init__(self, work: Callable[[Connection], Any], then: Callable[[Any], object]) -> None:
        self.work = work
        self.then = then
        self.is_done = False
        self.answer: Any = None
        self.error: BaseException | None = None


class Storage:
    """A database in a file, or in memory. What `write` returns from is on the disk."""

    def __init__(self, file: Path | None) -> None:
        """`file` None: in memory. Raises sqlite3.Error."""
        self._file = file
        self._writing = threading.Lock()
        self._jobs: deque[_Job] = deque()
        self._idle: list[Connection] = []
        self._writer = self._connect()
        if file is not None:
            self._writer.execute("PRAGMA auto_vacuum = INCREMENTAL")  # counts for a new file only
            self._writer.execute("PRAGMA journal_mode = WAL")
            self._writer.execute("PRAGMA synchronous = FULL")
            self._writer.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")

    def write(self, work: Callable[[Connection], T], then: Callable[[T], object] = lambda _: None) -> T:
        """Do some work that writes; all of it is stored, or nothing. `work` raises Refused before it changes anything.
        `then` is called with its answer once it is stored, in the order in which everything is stored.

        The first thread writes all pending work in one commit; the others wait for it."""
        job = _Job(work, then)
        self._jobs.append(job)
        with self._writing:
            while not job.is_done:
                self._write_together([self._jobs.popleft() for _ in range(min(_TOGETHER, len(self._jobs)))])
        if job.error is not None:
            raise job.error
        return job.answer  # type: ignore[no-any-return]

    def _write_together(self, jobs: Sequence[_Job]) -> None:
        connection = self._writer
        try:
            connection.execute("BEGIN IMMEDIATE")
            for job in jobs:
                self._try(job, connection)
            connection.execute("COMMIT")
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            why = out_of_order(str(error)) if isinstance(error, sqlite3.Error) else error
            for job in jobs:
                job.error, job.is_done = why, True
            if not isinstance(error, sqlite3.Error):
                raise
            return
        for job in jobs:
            if job.error is None:
                job.then(job.answer)
            job.is_done = True

    @staticmethod
    def _try(job: _Job, connection: Connection) -> None:
        """Refusals are the job's own: nothing has been changed yet."""
        before = connection.total_changes
        try:
            job.answer = job.work(connection)
        except sqlite3.Error:
            raise
        except Exception as error:
            if connection.total_changes != before:
                raise
            job.error = error

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection that sees what is stored. Raises Refused."""
        try:
            if self._file is None:
                with self._writing:
                    yield self._writer
                return
            connection = self._idle.pop() if self._idle else self._connect()
            try:
                yield connection
            finally:
                self._idle.append(connection)
        except sqlite3.Error as error:
            raise out_of_order(str(error)) from error

    def shrink(self) -> None:
        """Give free pages back to the disk, some at a time."""
        if self._file is not None:
            with self._writing:
                # as a script: `execute` takes one step of it, which gives back one page
                self._writer.executescript(f"PRAGMA incremental_vacuum({_FREE_PAGES})")

    def close(self) -> None:
        """Close it; what is under way ends first."""
        with self._writing:
            for connection in (*self._idle, self._writer):
                connection.close()

    def _connect(self) -> Connection:
        place = ":memory:" if self._file is None else str(self._file)
        if self._file is not None and not self._file.exists():
            os.close(os.open(self._file, os.O_CREAT | os.O_RDWR, 0o600))
        return sqlite3.connect(
            place, isolation_level=None, check_same_thread=False, cached_statements=_STATEMENTS
        )
