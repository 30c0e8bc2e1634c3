"""ports.Audit in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from ...domain.audit import AuditEntry


class MemoryAudit:
    """ports.Audit as a dict."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, AuditEntry] = {}

    def add(self, entry: AuditEntry) -> None:
        with self._lock:
            self._entries[entry.key] = entry

    def entries(self, from_ms: int, to_ms: int, before: str | None) -> Iterator[AuditEntry]:
        with self._lock:
            entries = sorted(self._entries.values(), key=lambda entry: entry.key, reverse=True)
        within = (entry for entry in entries if from_ms <= entry.at_ms < to_ms)
        yield from (entry for entry in within if before is None or entry.key < before)
