"""Numbers, times and sizes as people read them."""

from __future__ import annotations

from datetime import datetime

from .translations import text_of

NOTHING = "\u2013"
_SECOND, _MINUTE, _HOUR, _DAY = 1, 60, 3_600, 86_400
_SPANS = ((_DAY, "d", _HOUR, "h"), (_HOUR, "h", _MINUTE, "m"), (_MINUTE, "m", _SECOND, "s"))
_KIB = 1_024


def count(number: int | None, at_least: bool = False) -> str:
    """1,234; with a plus sign where there may be more."""
    return NOTHING if number is None else f"{number:,}{'+' if at_least else ''}"


def units(number: float) -> str:
    """Read units: half ones are the smallest there are."""
    return f"{number:g}"


def rate(per_second: float | None) -> str:
    """A rate in messages a second, to two digits that matter."""
    if per_second is None:
        return NOTHING
    return f"{per_second:,.0f}" if per_second >= 10 or per_second == 0 else f"{per_second:.2g}"


def percent(share: float | None) -> str:
    """A share, rounded down: less than all is not 100 %."""
    return NOTHING if share is None else f"{int(share * 1_000) / 10:g} %"


def span(ms: float | None, language: str = "en") -> str:
    """A length of time in its one or two largest units: 350 ms, 12 s, 3 m 20 s, 2 h, 5 d."""
    if ms is None:
        return NOTHING
    if ms < 1_000:
        return f"{max(0, round(ms))} {text_of(language, 'ms', 'unit')}"
    seconds = int(ms // 1_000)
    for size, name, below, below_name in _SPANS:
        if seconds >= size:
            whole, rest = divmod(seconds, size)
            small = rest // below
            rest_text = f" {small} {text_of(language, below_name, 'unit')}" if small and whole < 10 else ""
            return f"{whole} {text_of(language, name, 'unit')}{rest_text}"
    number = f"{seconds}" if seconds >= 10 or ms % 1_000 < 100 else f"{ms / 1_000:.1f}"
    return f"{number} {text_of(language, 's', 'unit')}"


def ms_of(text: str | None) -> int | None:
    """A time as the API writes it, in milliseconds."""
    return round(datetime.fromisoformat(text).timestamp() * 1_000) if text else None


def size(number: int) -> str:
    """Bytes."""
    if number < _KIB:
        return f"{number} B"
    if number < _KIB * _KIB:
        return f"{number / _KIB:.1f} KiB"
    return f"{number / _KIB / _KIB:.1f} MiB"
