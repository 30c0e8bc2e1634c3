"""Lengths of time, in the two units of this code: milliseconds (…_MS) and whole seconds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

SECOND_MS = 1_000
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 86_400_000

HOUR_SECONDS = 3_600
DAY_SECONDS = 86_400
# By how much the clocks of two processes may differ. What is further ahead was stored by a clock that was wrong.
CLOCKS_DIFFER_MS = 15 * SECOND_MS
FIRST_SECOND = -62_135_596_800  # of the year 1, the first that a calendar here has
LAST_SECOND = 253_402_300_799  # of the year 9999, the last


def rfc3339(ms: int) -> str:
    """A time in UTC, with milliseconds."""
    return f"{calendar_time(ms).replace(tzinfo=None).isoformat()}.{ms % 1000:03d}Z"


def calendar_time(ms: int) -> datetime:
    """A time in UTC, to the second; of what is none, as damaged rows may have it, the first or the last."""
    return datetime.fromtimestamp(min(max(ms // SECOND_MS, FIRST_SECOND), LAST_SECOND), UTC)


GoOn = Callable[[], bool]  # asked before more is read


def always() -> bool:
    """Go on to the end."""
    return True
