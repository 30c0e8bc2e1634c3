"""Handle each message once: a middleware that notes, in a SQLite file, what is being handled and what was."""

from __future__ import annotations

import inspect
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from .consume.outcomes import Retry
from .durations import Duration, seconds
from .models import Message

_FORGET_EVERY = 1000
_RESERVE = """
    INSERT INTO messages VALUES (:id, :now, :now + :hold) ON CONFLICT (id)
    DO UPDATE SET at = :now, held_until = :now + :hold WHERE held_until <= :now"""


class Once:
    """Skips messages that were handled before for the same group: delivery is at least once.

        once = Once("handled.sqlite")
        @hr.consumer("orders", group="mailer", middleware=[once])

    All processes of a machine that name the file share it. A message is reserved while its handler runs: meanwhile
    other attempts at it fail (`Retry`), and come again when the reservation ends. An exception ends it at once. If the
    process is killed, it ends after `hold`: set that longer than a handler takes, because after it another attempt may
    begin.

    It does not stop a process that is killed between the work and its note. Where that must not happen, store
    `message.id` in your own database, in the transaction that does the work.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        keep: Duration = "7d",
        hold: Duration = "5m",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._keep = seconds(keep)
        self._hold = seconds(hold)
        self._clock = clock
        self._lock = threading.Lock()
        self._count = 0
        self._file = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10)
        self._file.execute(
            "CREATE TABLE IF NOT EXISTS messages (id TEXT PRIMARY KEY, at REAL, held_until REAL) WITHOUT ROWID"
        )

    def __call__(self, message: Message, call: Callable[[Message], Any]) -> Any:
        name = f"{message.group}/{message.id}"  # each group of a topic has the same messages
        since = self._reserve(name)
        if since is None:
            return None
        try:
            result = call(message)
        except BaseException:
            self._free(name, since)
            raise
        if inspect.isawaitable(result):  # of an async handler, which has not begun yet
            return self._end_after(name, since, result)
        self._remember(name)
        return result

    async def _end_after(self, name: str, since: float, handling: Awaitable[Any]) -> Any:
        try:
            result = await handling
        except BaseException:
            self._free(name, since)
            raise
        self._remember(name)
        return result

    def _reserve(self, name: str) -> float | None:
        """Since when it is reserved for this attempt; None: it was handled. Raises Retry while another attempt has
        it."""
        now = self._clock()
        with self._lock:
            mine = self._file.execute(_RESERVE, {"id": name, "now": now, "hold": self._hold}).rowcount
            if mine:
                return now
            row = self._file.execute("SELECT held_until FROM messages WHERE id = ?", (name,)).fetchone()
        if row is not None and row[0] is None:
            return None
        left = row[0] - now if row is not None else 0  # ended just now
        raise Retry(max(left, 1), "another attempt at this message is under way")

    def _free(self, name: str, since: float) -> None:
        with self._lock:
            self._file.execute(
                "DELETE FROM messages WHERE id = ? AND at = ? AND held_until IS NOT NULL",
                (name, since),
            )

    def _remember(self, name: str) -> None:
        now = self._clock()
        with self._lock:
            self._file.execute("INSERT OR REPLACE INTO messages VALUES (?, ?, NULL)", (name, now))
            self._count += 1
            if self._count % _FORGET_EVERY == 0:
                self._file.execute("DELETE FROM messages WHERE at < ?", (now - self._keep,))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()
