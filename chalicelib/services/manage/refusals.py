"""Counts calls without a valid token (401) in the audit trail, without a write for each."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ...domain.audit import AuditEntry
from ...domain.errors import HeadraceError
from ...domain.times import HOUR_MS
from ...ports.world import Clock, Random

if TYPE_CHECKING:
    from ...store.audit import Audit


_ID_CHARS = 20
_PATH_CHARS = 200
NOBODY = "nobody"


class Refusals:
    """Writes an entry for the first call of an hour, the tenth, the hundredth and so on: a million calls leave seven
    entries. Each process counts its own."""

    def __init__(self, audit: Audit, clock: Clock, random: Random) -> None:
        self._audit = audit
        self._clock = clock
        self._random = random
        self._lock = threading.Lock()
        self._hour = 0
        self._count = 0

    def note(self, token_id: str, method: str, path: str, source: str | None = None) -> None:
        """Count one call. `token_id` is the id in the token's text, empty if it has not the form of a token. An entry
        that cannot be stored is left out."""
        now_ms = self._clock.now_ms()
        count = self._count_refusal(now_ms // HOUR_MS)
        if count != 10 ** (len(str(count)) - 1):
            return
        entry = AuditEntry(
            at_ms=now_ms,
            token_id=token_id,
            token_name=NOBODY,
            method=method,
            path=path[:_PATH_CHARS],
            object=f"token {token_id or '?'}, refusal {count:,} of this hour",
            result="UNAUTHORIZED",
            request_id=self._random.id(_ID_CHARS),
            source=source,
        )
        try:
            self._audit.add(entry)
        except HeadraceError:
            return

    def _count_refusal(self, hour: int) -> int:
        with self._lock:
            if hour != self._hour:
                self._hour, self._count = hour, 0
            self._count += 1
            return self._count
