"""The first page: what is wrong, and every topic in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..http import Page, Shown, Visit, page

if TYPE_CHECKING:
    from ...domain.topic import Topic

_LINES = 32
_ROWS = 100
_ENOUGH = 9  # what one topic may cost at most, about: so much is left when another is begun


@page("GET", "/console")
def overview(visit: Visit) -> Shown:
    """All is well, or the worst thing first; topics by trouble."""
    from ..views.overview import overview as view

    topics, following = _topics(visit, visit.query.get("after", ""))
    board = visit.deps.board
    surveys = board.renewed(topics, lambda: visit.has_units(_ENOUGH))
    surveys = {uid: survey.seen_by(visit.caller) for uid, survey in surveys.items()}
    history = {topic.uid: board.points(topic) for topic in topics}
    model = {"overview": view(topics, surveys, history, visit.now_ms), "following": following}
    return Page("overview.html" if topics or "after" in visit.query else "empty.html", model)


def _topics(visit: Visit, after: str) -> tuple[list[Topic], str | None]:
    """A page of the topics that the token may use, by name, and behind which one the next begins."""
    caller, control = visit.caller, visit.deps.adapters.control
    topics: list[Topic] = []
    start = caller.behind(after)
    while start is not None and visit.has_units(_ENOUGH):
        rows = control.topics(start or None, min(_ROWS, _LINES + 1), consistent=False)
        topics += [topic for topic in rows if caller.may_use(topic.name)]
        if len(topics) > _LINES:
            return topics[:_LINES], topics[_LINES - 1].name
        if len(rows) < _LINES + 1:
            return topics, None
        start = caller.behind(rows[-1].name)
    return topics, start
