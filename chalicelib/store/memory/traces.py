"""ports.Traces in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from itertools import chain

from ...domain.topic import CursorKey
from ...domain.trace import TraceRow
from ..layout import trace_home
from ..traces import in_order, parts


class MemoryTraces:
    """ports.Traces as a dict."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._homes: dict[str, dict[tuple[int, str], TraceRow]] = {}  # by first offset and id

    def write(self, rows: Sequence[TraceRow]) -> None:
        with self._lock:
            for part in chain.from_iterable(map(parts, rows)):
                home = self._homes.setdefault(trace_home(part.key), {})
                home[part.entries[0].offset, part.id] = part

    def rows_covering(self, key: CursorKey, offset: int, *, consistent: bool = False) -> list[TraceRow]:
        with self._lock:
            rows = self._homes.get(trace_home(key), {})
            return in_order((rows[place] for place in sorted(rows)), offset)

    def newest(self, key: CursorKey, rows_per_read: int) -> Iterator[TraceRow | None]:
        with self._lock:
            rows = self._homes.get(trace_home(key), {})
            return iter([rows[place] for place in sorted(rows, reverse=True)])

    def drop_expired(self, now_s: int) -> None:
        """Delete expired rows, as DynamoDB's TTL does."""
        with self._lock:
            for home, rows in list(self._homes.items()):
                self._homes[home] = {place: row for place, row in rows.items() if row.expires_s > now_s}
