"""ports.Keys in memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from ...ports.log import KeyEntry
from ..keys import marks
from ..layout import key_home


class MemoryKeys:
    """ports.Keys as a dict."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[tuple[str, str], KeyEntry] = {}  # by home and position

    def note(self, entries: Sequence[KeyEntry]) -> None:
        with self._lock:
            self._rows.update({(key_home(e.topic_uid, e.key), e.sort_key): e for e in entries})

    def newest(
        self,
        topic_uid: str,
        key: str,
        from_ms: int | None,
        to_ms: int | None,
        before: str | None,
        limit: int,
    ) -> list[KeyEntry]:
        first, last = marks(from_ms, to_ms)
        with self._lock:
            entries = [
                entry
                for (home, position), entry in self._rows.items()
                if home == key_home(topic_uid, key)
                and first <= position <= last
                and position < (before or "~")
            ]
        return sorted(entries, key=lambda e: e.sort_key, reverse=True)[:limit]

    def drop_expired(self, now_s: int) -> None:
        """Delete expired rows, as DynamoDB's TTL does."""
        with self._lock:
            self._rows = {place: row for place, row in self._rows.items() if row.expires_s > now_s}
