"""Handle each message once: a middleware that remembers, in a SQLite file, what was handled."""

from __future__ import annotations

import inspect
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from .durations import Duration, seconds
from .models import Message

_FORGET_EVERY = 1000


class Once:
    """Skips messages that were handled before for the same group: delivery is at least once.

        once = Once("handled.sqlite")
        @hr.consumer("orders", group="mailer", middleware=[once])

    It remembers after the handler is through, so a crash in between lets the message come again. Where that must not
    be, note `message.id` in your own database, in the transaction that does the work.
    """

    def __init__(
        self, path: str | Path, *, keep: Duration = "7d", clock: Callable[[], float] = time.time
    ) -> None:
        self._keep = seconds(keep)
        self._clock = clock
        self._lock = threading.Lock()
        self._count = 0
        self._file = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10)
        self._file.execute("CREATE TABLE IF NOT EXISTS handled (id TEXT PRIMARY KEY, at REAL) WITHOUT ROWID")

    def __call__(self, message: Message, call: Callable[[Message], Any]) -> Any:
        name = f"{message.group}/{message.id}"  # each group of a topic has the same messages
        if self._knows(name):
            return None
        result = call(message)
        if inspect.isawaitable(result):  # of an async handler, which has not begun yet
            return self._remember_after(name, result)
        self._remember(name)
        return result

    async def _remember_after(self, name: str, handling: Awaitable[Any]) -> Any:
        result = await handling
        self._remember(name)
        return result

    def _knows(self, name: str) -> bool:
        with self._lock:
            return self._file.execute("SELECT 1 FROM handled WHERE id = ?", (name,)).fetchone() is not None

    def _remember(self, name: str) -> None:
        now = self._clock()
        with self._lock:
            self._file.execute("INSERT OR IGNORE INTO handled VALUES (?, ?)", (name, now))
            self._count += 1
            if self._count % _FORGET_EVERY == 0:
                self._file.execute("DELETE FROM handled WHERE at < ?", (now - self._keep,))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()
