"""Schedules: all of them, and one with its next times and last messages."""

from __future__ import annotations

import json

from .. import actions
from ..visit import Page, Shown, Visit

_LINES = 32


def schedules(visit: Visit) -> Shown:
    """Schedules by name, of the topics that the token may use."""
    return Page("schedules.html", actions.listing(visit, "list_schedules", _LINES, visit.query.get("page")))


def schedule(visit: Visit) -> Shown:
    """One schedule."""
    found = actions.do(visit, actions.Action("get_schedule", visit.params))
    message = json.dumps(found["message"], indent=2, ensure_ascii=False)
    return Page("schedule.html", {"schedule": found, "message": message})
