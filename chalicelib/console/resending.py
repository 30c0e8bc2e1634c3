"""A message that is sent again after a lost answer: under the name of the first try, so that it is stored once."""

from __future__ import annotations

from ..api.parse import REQUEST, RESEND
from ..domain.errors import HeadraceError, Unavailable
from .deeds import Deed
from .forms import is_whole_number
from .http import Visit

FIELDS = frozenset({"request", "since_ms"})
"""Fields of a form that is shown again: the first try's name, and when it may have begun."""
_LONGEST_MS = 30_000  # of a try: the gateway ends it after 29 s


def headers(visit: Visit, deed: Deed) -> dict[str, str]:
    """The headers that name the request; none where the call takes no name."""
    name, since_ms = visit.form.get("request"), visit.form.get("since_ms", "")
    if REQUEST not in deed.call.headers:
        return {}
    if not name or not is_whole_number(since_ms):
        return {REQUEST: visit.request_id}
    return {REQUEST: name, RESEND: str(max(0, visit.now_ms - int(since_ms)) // 1000 + 1)}


def fields(visit: Visit, deed: Deed, error: HeadraceError) -> dict[str, str]:
    """FIELDS, where a try of this form may have stored the message. Where it is too late to tell, the next one has a
    new name."""
    if REQUEST not in deed.call.headers or error.code == "RESEND_TOO_LATE":
        return {}
    if "request" not in visit.form and isinstance(error, Unavailable):
        return {"request": visit.request_id, "since_ms": str(visit.now_ms - _LONGEST_MS)}
    return {name: value for name, value in visit.form.items() if name in FIELDS}


def is_safe(visit: Visit, deed: Deed) -> bool:
    """Is it stored once, however often the form is sent? A delayed message is not found by its request's name."""
    is_delayed = bool(visit.form.get("delay_seconds") or visit.form.get("deliver_at"))
    return REQUEST in deed.call.headers and (not is_delayed or bool(visit.form.get("dedup_id")))
