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
