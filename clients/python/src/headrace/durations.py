"""Durations and times as people write them."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta, timezone

Duration = float | str | timedelta
"""Seconds, "30m", "1h30m", or a timedelta."""

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")


def seconds(duration: Duration) -> float:
    """A duration in seconds. ValueError for what is none."""
    if isinstance(duration, timedelta):
        number = duration.total_seconds()
    elif isinstance(duration, str):
        number = _seconds_of(duration.strip().lower())
    else:
        number = float(duration)
    if not 0 <= number < float("inf"):
        raise ValueError(f"{duration!r} is no duration: it must be 0 or more seconds.")
    return number


def whole_seconds(duration: Duration) -> int:
    """The same, rounded up to whole seconds: nothing comes too early."""
    return math.ceil(seconds(duration))


def asked_wait(retry_after: str | None, now: float) -> float | None:
    """The seconds that a `Retry-After` asks for (RFC 9110): their number, or a date, where one that is past asks for 0.
    None where there is none, and for nonsense. `now`: seconds since 1970."""
    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    from email.utils import parsedate_to_datetime  # late: it takes a tenth of the package's time to import

    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp() - now)


def _seconds_of(text: str) -> float:
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(
            f'{text!r} is no duration: write "90s", "30m", "1h30m", "7d" or a number of seconds.'
        )
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def rfc3339(moment: datetime | str) -> str:
    """A time as the interface wants it: UTC, with milliseconds. ValueError for one without a zone."""
    if isinstance(moment, str):
        return moment
    if not isinstance(moment, datetime):
        raise ValueError(f"{moment!r} is no time: give a datetime with its zone, or a text in RFC 3339.")
    if moment.tzinfo is None:
        raise ValueError("A time needs its zone: datetime.now(timezone.utc), say.")
    utc_moment = moment.astimezone(timezone.utc)
    return f"{utc_moment:%Y-%m-%dT%H:%M:%S}.{utc_moment.microsecond // 1000:03d}Z"
