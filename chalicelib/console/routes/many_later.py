"""Actions on many delayed messages: those of an hour, selected ones, or all."""

from __future__ import annotations

from ..http import Page, Shown, Visit, page
from .messages import check_may_read
from .waiting import delayed_of, hour_of

_MOST = 200
_MOST_SHOWN = 5
_PICK = "id."


@page("GET", "/console/topics/{topic}/later/many")
def many_later(visit: Visit) -> Shown:
    """How many they are, and what can be done with them: with exactly those that were counted."""
    from ...services.inspect.waiting import reader

    check_may_read(visit)
    topic = visit.topic()
    ids = {name.removeprefix(_PICK) for name in visit.query if name.startswith(_PICK)}
    read = reader(visit.deps.adapters.timers, consistent=False)
    delayed_list = delayed_of(visit, topic, read, _MOST)
    rows = delayed_list.rows
    if ids:
        rows = [row for row in rows if row.timer.id in ids]
    model = {
        "topic": topic,
        "shown": rows[:_MOST_SHOWN],
        "number": len(rows),
        "ids": [row.timer.id for row in rows],
        "first_ms": rows[0].timer.due_ms if rows else None,
        "last_ms": rows[-1].timer.due_ms if rows else None,
        "more": delayed_list.following is not None and not ids,
        "delayed": delayed_list,
        "hour_ms": hour_of(visit),
    }
    return Page("many_later.html", model)
