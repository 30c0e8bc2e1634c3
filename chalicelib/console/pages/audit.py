"""The tokens, without their texts; and the audit trail: which of them changed what."""

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
_TOKENS = 32
_FOR_TOKENS = 10  # read units that a page of tokens with long lists of topics may cost


def audit(visit: Visit) -> Shown:
    """Entries, the newest first; filters stand in the URL."""
    refusal = actions.why_not_allowed(actions.Action("list_audit"), visit.caller)
    model: dict[str, Any] = {"refusal": refusal, "entries": [], "following": None, "problem": None}
    if refusal:
        return Page("audit.html", model)
    query = {name: visit.query[name].strip() for name in ("topic", "token") if visit.query.get(name)}
    query |= {name: whole_time(visit.query[name]) for name in ("from", "to") if visit.query.get(name)}
    try:
        selection = filter_of(query, visit.now_ms)
    except Malformed as error:
        return Page("audit.html", model | {"problem": error}, 400)
    trail, before = visit.deps.adapters.audit, visit.position(_PURPOSE, "before")
    entries, next_start = newest_first(trail, selection, before, _LINES, lambda _: visit.has_units(_LEFT))
    following = visit.signed(_PURPOSE, next_start)
    return Page("audit.html", model | {"entries": entries, "following": following, "filters": query})


def tokens(visit: Visit) -> Shown:
    """The tokens, without their texts; those whose name has a given text in it are looked for as far as a page may."""
    name, matches = visit.query.get("name", ""), list[Any]()
    model: dict[str, Any] = {"following": visit.query.get("page")}
    while True:
        model = actions.listing(visit, "list_tokens", _TOKENS, model["following"])
        matches += [each for each in model["items"] if name.casefold() in each["name"].casefold()]
        may_go_on = name and model["following"] and len(matches) < _TOKENS
        if not (may_go_on and visit.has_units(_FOR_TOKENS)):
            return Page("tokens.html", model | {"items": matches})
