"""ports.Traces in memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import chain

from ...domain.topic import CursorKey
from ...domain.trace import TraceRow
from ..layout import trace_home
from ..traces import in_order, parts


class MemoryTraces:
    """ports.Traces as a dict."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[tuple[str, int, str], TraceRow] = {}  # by home, first offset and id

    def write(self, rows: Sequence[TraceRow]) -> None:
        with self._lock:
            for part in chain.from_iterable(map(parts, rows)):
                self._rows[trace_home(part.key), part.tried[0].offset, part.id] = part

    def covering(self, key: CursorKey, offset: int, *, consistent: bool = False) -> list[TraceRow]:
        with self._lock:
            places = sorted(place for place in self._rows if place[0] == trace_home(key))
            return in_order((self._rows[place] for place in places), offset)

    def drop_expired(self, now_s: int) -> None:
        """What DynamoDB's TTL does."""
        with self._lock:
            self._rows = {place: row for place, row in self._rows.items() if row.expires_s > now_s}
