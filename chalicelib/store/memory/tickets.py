"""ports.Tickets in memory."""

from __future__ import annotations

import threading


class MemoryTickets:
    """ports.Tickets as a set."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used: set[str] = set()

    def use(self, ticket_id: str, now_ms: int, until_s: int) -> bool:
        with self._lock:
            is_new = ticket_id not in self._used
            self._used.add(ticket_id)
            return is_new
