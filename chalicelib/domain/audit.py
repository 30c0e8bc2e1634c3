"""The audit trail: who did what to which object, from where."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

# In place of a token's id and name: a change that the service made by itself.
SERVICE = "service"


@dataclass(kw_only=True, frozen=True, slots=True)
class AuditEntry:
    """One call that changed something, or tried to. `result` is "OK" or the error's code; `topic` the one it was
    about (None: another thing); `source` the caller's address as far as it is known. A change that the service made by
    itself has no method and no path; its `result` is the new state."""

    at_ms: int
    token_id: str
    token_name: str
    method: str
    path: str
    object: str
    result: str
    request_id: str
    topic: str | None = None
    source: str | None = None

    @property
    def key(self) -> str:
        """The sort key: by time; the request id distinguishes entries of one millisecond."""
        return f"{self.at_ms:015d}#{self.request_id}"


def month_of(ms: int) -> str:
    """The month of a time, UTC: `2026-11`."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m}"


def months_back(from_ms: int, to_ms: int) -> list[str]:
    """The months of a span, the latest first."""
    month, first = datetime.fromtimestamp(to_ms / 1000, UTC), month_of(from_ms)
    months = [f"{month:%Y-%m}"]
    while months[-1] > first:
        year, number = month.year, month.month - 1
        month = datetime(year if number else year - 1, number or 12, 1, tzinfo=UTC)
        months.append(f"{month:%Y-%m}")
    return months
