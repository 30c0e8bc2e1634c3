"""The tokens, without their texts; and the audit trail: which of them changed what."""

from __future__ import annotations

from typing import Any

from ...api.resources.audit import filter_of, newest_first
from ...domain.errors import Malformed
from .. import actions
from ..actions import Action
from ..forms import whole_time
from ..visit import Page, Shown, Visit

_LINES = 50
_LEFT = 8  # so much is left, when another page of the trail is read
_PURPOSE = "console-audit"
_TOKENS = 32
_FOR_TOKENS = 10  # read units that a page of tokens with long lists of topics may cost


def audit(visit: Visit) -> Shown:
    """Entries, the newest first; filters stand in the URL."""
    refusal = actions.why_not_allowed(Action("list_audit"), visit.caller)
    model: dict[str, Any] = {"refusal": refusal, "entries": [], "following": None, "problem": None}
    if refusal:
        return Page("audit.html", model)
    query = {name: visit.query[name].strip() for name in ("topic", "token") if visit.query.get(name)}
    query |= {name: whole_time(visit.query[name]) for name in ("from", "to") if visit.query.get(name)}
    try:
        selection = filter_of(query, visit.now_ms)
    except Malformed as error:
        return Page("audit.html", model | {"problem": error}, 400)
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
    return Page("audit.html", model | {"entries": entries, "following": page_token, "filters": query})


def tokens(visit: Visit) -> Shown:
    """The tokens, without their texts; those whose name has a given text in it are looked for as far as a page may."""
    refusal = actions.why_not_allowed(_token_list(""), visit.caller)
    items, next_start = ([], "") if refusal else _tokens(visit, visit.query.get("page", ""))
    name = visit.query.get("name", "")
    matches = [each for each in items if _has(each, name)]
    while name and next_start and len(matches) < _TOKENS and visit.has_read_units(_FOR_TOKENS):
        items, next_start = _tokens(visit, next_start)
        matches += [each for each in items if _has(each, name)]
    return Page("tokens.html", {"items": matches, "following": next_start, "refusal": refusal})


def _token_list(start: str) -> Action:
    return Action("list_tokens", query={"limit": str(_TOKENS), **({"page_token": start} if start else {})})


def _tokens(visit: Visit, start: str) -> tuple[list[dict[str, Any]], str]:
    """The tokens of a page, and where the next one begins (empty: there is none)."""
    answer = actions.do(visit, _token_list(start))
    return answer["items"], answer.get("next_page_token", "")


def _has(token: dict[str, Any], text: str) -> bool:
    return text.casefold() in token["name"].casefold()
