"""What belongs to no topic: tokens, the schedules, the way in."""

from __future__ import annotations

from ..http import Page, Shown, Visit, page

_JOBS = ("sweep", "assign", "watch", "checkpoint", "expire")


@page("GET", "/console/tokens")
def tokens(visit: Visit) -> Shown:
    """The tokens, without their texts."""
    from .. import deeds

    listed = deeds.Deed("list_tokens", query={"limit": "32", **_page_of(visit)})
    refusal = deeds.why_not_allowed(listed, visit.caller)
    answer = {"items": []} if refusal else deeds.do(visit, listed)
    return Page("tokens.html", {"answer": answer, "refusal": refusal})


def _page_of(visit: Visit) -> dict[str, str]:
    return {"page_token": visit.query["page"]} if visit.query.get("page") else {}


@page("GET", "/console/system")
def system(visit: Visit) -> Shown:
    """Whether the tables can be read, and how far each schedule has come."""
    from ... import __version__

    rounds = visit.deps.adapters.rounds
    visit.deps.readiness.check()
    places = {job: rounds.place(job) for job in _JOBS}
    return Page("system.html", {"places": places, "version": __version__})
