"""The audit trail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from ..domain.audit import AuditEntry


class Audit(Protocol):
    """What was done, for AUDIT_DAYS. Entries are never changed."""

    def add(self, entry: AuditEntry) -> None:
        """Store an entry. Harmless to repeat."""
        ...

    def entries(self, from_ms: int, to_ms: int, before: str | None) -> Iterator[AuditEntry]:
        """Entries from a time on and before another, the newest first; only those before a key."""
        ...
