"""The Retry-After header (RFC 9110): seconds or a date."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ..domain.limits import MAX_RETRY_AFTER

_DATES = ("%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y")
_MAX_MS = MAX_RETRY_AFTER // timedelta(milliseconds=1)


def asked_wait_ms(text: str | None, now_ms: int) -> int | None:
    """How long to wait, at most a day; None for nothing, nonsense or a time that is past."""
    text = (text or "").strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:10]) * 1000, _MAX_MS) if len(text) <= 10 else _MAX_MS
    for form in _DATES:
        try:
            at = datetime.strptime(text, form).replace(tzinfo=UTC)
        except ValueError:
            continue
        ms = round(at.timestamp() * 1000) - now_ms
        return min(ms, _MAX_MS) if ms > 0 else None
    return None
