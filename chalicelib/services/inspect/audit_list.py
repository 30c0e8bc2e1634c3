"""The audit trail, newest first and filtered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...domain.audit import AuditEntry

if TYPE_CHECKING:
    from ...store.audit import Audit


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which entries: of this topic, by this token, at `from_ms` or later and before `to_ms`."""

    from_ms: int
    to_ms: int
    topic: str | None = None
    token_id: str | None = None

    def fits(self, entry: AuditEntry) -> bool:
        """Are the entry's topic and token those asked for? The times are not looked at: the query has limited them."""
        return self.topic in (None, entry.topic) and self.token_id in (None, entry.token_id)


def newest_first(
    audit: Audit,
    which: AuditFilter,
    before: str | None,
    limit: int,
    may_go_on: Callable[[int], bool],
) -> tuple[list[AuditEntry], str | None]:
    """Up to `limit` entries before a position, and the next position (None: the end). `may_go_on(entries)` is asked
    after each query."""
    entries: list[AuditEntry] = []
    if which.from_ms >= which.to_ms:
        return entries, None
    for looks, entry in enumerate(audit.entries(which.from_ms, which.to_ms, before), 1):
        if which.fits(entry):
            entries.append(entry)
        if len(entries) == limit or not may_go_on(looks):
            return entries, entry.key
    return entries, None
