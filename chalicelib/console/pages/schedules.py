"""Schedules: all of them, and one with its next times and last messages."""

from __future__ import annotations

import json

from .. import actions
from ..actions import Action
from ..visit import Page, Shown, Visit

_LINES = 32


def schedules(visit: Visit) -> Shown:
    """Schedules by name, of the topics that the token may use."""
    query = {"limit": str(_LINES), **({"page_token": page} if (page := visit.query.get("page")) else {})}
    action = Action("list_schedules", query=query)
    refusal = actions.why_not_allowed(action, visit.caller)
    answer = {"items": []} if refusal else actions.do(visit, action)
    following = answer.get("next_page_token")
    return Page("schedules.html", {"items": answer["items"], "following": following, "refusal": refusal})


def schedule(visit: Visit) -> Shown:
    """One schedule."""
    found = actions.do(visit, Action("get_schedule", visit.params))
    message = json.dumps(found["message"], indent=2, ensure_ascii=False)
    return Page("schedule.html", {"schedule": found, "message": message})
