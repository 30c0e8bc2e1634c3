"""The tokens, without their texts."""

from __future__ import annotations

from typing import Any

from .. import actions
from ..actions import Action
from ..visit import Page, Shown, Visit

_TOKENS = 32
_FOR_TOKENS = 10  # read units that a page of tokens with long lists of topics may cost


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
