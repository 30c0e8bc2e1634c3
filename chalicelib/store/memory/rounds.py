"""ports.Rounds in memory."""

from __future__ import annotations

import threading
from dataclasses import replace

from ...ports.rounds import Bookmark


class MemoryRounds:
    """ports.Rounds as a dict."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bookmarks: dict[str, Bookmark] = {}

    def bookmark(self, job: str) -> Bookmark:
        return self._bookmarks.get(job, Bookmark())

    def keep(self, job: str, bookmark: Bookmark) -> Bookmark | None:
        with self._lock:
            if self.bookmark(job).version != bookmark.version:
                return None
            self._bookmarks[job] = replace(bookmark, version=bookmark.version + 1)
            return self._bookmarks[job]
