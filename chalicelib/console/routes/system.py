"""What belongs to no topic: tokens, the schedules, the way in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..http import Page, Shown, Visit, page

if TYPE_CHECKING:
    from ...ports.rounds import Bookmark

_MINUTE_MS, _SIX_HOURS_MS = 60_000, 21_600_000
_JOBS = {
    "sweep": _MINUTE_MS,
    "assign": _MINUTE_MS,
    "watch": _MINUTE_MS,
    "checkpoint": _SIX_HOURS_MS,
    "expire": _SIX_HOURS_MS,
}
"""How often each comes."""
_TWO_DAYS = 48


@page("GET", "/console/tokens")
def tokens(visit: Visit) -> Shown:
    """The tokens, without their texts."""
    from .. import deeds

    list_call = deeds.Deed("list_tokens", query={"limit": "32", **_page_of(visit)})
    refusal = deeds.why_not_allowed(list_call, visit.caller)
    answer = {"items": []} if refusal else deeds.do(visit, list_call)
    return Page("tokens.html", {"answer": answer, "refusal": refusal})


def _page_of(visit: Visit) -> dict[str, str]:
    return {"page_token": visit.query["page"]} if visit.query.get("page") else {}


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
    model = {
        "bookmarks": bookmarks,
        "every_ms": _JOBS,
        "late_ms": {job: _late_ms(bookmark, _JOBS[job], now_ms) for job, bookmark in bookmarks.items()},
        "today": today(visit.deps.adapters.readings.latest(STAGE, HOURS, _TWO_DAYS), now_ms),
        "version": __version__,
    }
    return Page("system.html", model)


def _late_ms(bookmark: Bookmark, every_ms: int, now_ms: int) -> int:
    """How long a round that is under way is behind its time. A job that finds nothing to do keeps no note of it."""
    return (
        max(0, now_ms - bookmark.passed_ms - 2 * every_ms) if bookmark.is_open and bookmark.passed_ms else 0
    )
