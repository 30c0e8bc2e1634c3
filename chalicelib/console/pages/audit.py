"""The audit trail: who changed what."""

from __future__ import annotations

from typing import Any

from ...api.resources.audit import filter_of, newest_first
from ...domain.errors import Malformed
from .. import actions
from ..forms import whole_time
from ..visit import Page, Shown, Visit

_LINES = 50
_LEFT = 8  # so much is left, when another page of the trail is read
_PURPOSE = "console-audit"


def audit(visit: Visit) -> Shown:
    """Entries, the newest first; filters stand in the URL."""
    refusal = actions.why_not_allowed(actions.Action("list_audit"), visit.caller)
    if refusal:
        return Page("audit.html", {"refusal": refusal, "entries": [], "following": None, "problem": None})
    query = {name: visit.query[name].strip() for name in ("topic", "token") if visit.query.get(name)}
    query |= {name: whole_time(visit.query[name]) for name in ("from", "to") if visit.query.get(name)}
    try:
        selection = filter_of(query, visit.now_ms)
    except Malformed as error:
        model: dict[str, Any] = {"refusal": None, "entries": [], "following": None, "problem": error}
        return Page("audit.html", model, 400)
    keys = visit.deps.signing_keys
    before = keys.verified(_PURPOSE, visit.query.get("before", "")) or None
    entries, next_start = newest_first(
        visit.deps.adapters.audit,
        selection,
        before,
        _LINES,
        may_go_on=lambda looks: visit.has_read_units(_LEFT),
    )
    page_token = keys.sign(_PURPOSE, next_start) if next_start else None
    return Page(
        "audit.html",
        {"refusal": None, "entries": entries, "following": page_token, "problem": None, "filters": query},
    )
