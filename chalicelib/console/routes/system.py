"""What belongs to no topic: tokens, the schedules, the way in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...domain.times import HOUR_MS, MINUTE_MS
from ..http import Page, Shown, Visit, page

if TYPE_CHECKING:
    from ...domain.mark import Bookmark
    from ..deeds import Deed

_SIX_HOURS_MS = 6 * HOUR_MS
_JOBS = {
    "sweep": MINUTE_MS,
    "assign": MINUTE_MS,
    "watch": MINUTE_MS,
    "checkpoint": _SIX_HOURS_MS,
    "expire": _SIX_HOURS_MS,
}
"""How often each comes."""
_TWO_DAYS = 48
_TOKENS = 32
_FOR_TOKENS = 10  # read units that a page of tokens with long lists of topics may cost


@page("GET", "/console/tokens")
def tokens(visit: Visit) -> Shown:
    """The tokens, without their texts; those whose name has a given text in it are looked for as far as a page may."""
    from .. import deeds

    refusal = deeds.why_not_allowed(_token_list(""), visit.caller)
    items, next_start = ([], "") if refusal else _tokens(visit, visit.query.get("page", ""))
    name = visit.query.get("name", "")
    matches = [each for each in items if _has(each, name)]
    while name and next_start and len(matches) < _TOKENS and visit.has_read_units(_FOR_TOKENS):
        items, next_start = _tokens(visit, next_start)
        matches += [each for each in items if _has(each, name)]
    return Page("tokens.html", {"items": matches, "following": next_start, "refusal": refusal})


def _token_list(start: str) -> Deed:
    from ..deeds import Deed

    return Deed("list_tokens", query={"limit": str(_TOKENS), **({"page_token": start} if start else {})})


def _tokens(visit: Visit, start: str) -> tuple[list[dict[str, Any]], str]:
    """The tokens of a page, and where the next one begins (empty: there is none)."""
    from .. import deeds

    answer = deeds.do(visit, _token_list(start))
    return answer["items"], answer.get("next_page_token", "")


def _has(token: dict[str, Any], text: str) -> bool:
    return text.casefold() in token["name"].casefold()


@page("GET", "/console/system")
def system(visit: Visit) -> Shown:
    """Whether the tables can be read, and how far each schedule has come."""
    from ... import __version__
    from ...domain.meter import HOURS, STAGE
    from ..views.today import today

    rounds = visit.deps.adapters.rounds
    visit.deps.readiness.check()
    bookmarks = {job: rounds.bookmark(job) for job in _JOBS}
    now_ms = visit.now_ms
    readings = visit.deps.adapters.readings
    model = {
        "bookmarks": bookmarks,
        "every_ms": _JOBS,
        "late_ms": {job: _late_ms(bookmark, _JOBS[job], now_ms) for job, bookmark in bookmarks.items()},
        "today": today(readings.latest(STAGE, HOURS, _TWO_DAYS), now_ms) if visit.caller.has_all else None,
        "version": __version__,
    }
    return Page("system.html", model)


def _late_ms(bookmark: Bookmark, every_ms: int, now_ms: int) -> int:
    """How long a round that is under way is behind its time. A job that finds nothing to do keeps no note of it."""
    return (
        max(0, now_ms - bookmark.passed_ms - 2 * every_ms) if bookmark.is_open and bookmark.passed_ms else 0
    )
