"""The first page: what is wrong, and every topic in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..http import Page, Shown, Visit, page

if TYPE_CHECKING:
    from ...domain.topic import Topic

_LINES = 32
_ROWS = 100
_WALKED = 4
_FOR_THE_PAGE = 14  # so much is left to it, when a topic of another page is looked at
_ENOUGH = 11  # what one topic may cost at most, about: so much is left when another is begun


@page("GET", "/console")
def overview(visit: Visit) -> Shown:
    """All is well, or the worst thing first; topics by trouble."""
    from ..views.overview import overview as view

    topics, following = _topics(visit, visit.query.get("after", ""))
    is_all = following is None and "after" not in visit.query
    board = visit.deps.board
    if not is_all:
        _look_beyond(visit)
    surveys = board.renewed(topics, lambda: visit.has_units(_ENOUGH))
    surveys = {uid: survey.seen_by(visit.caller) for uid, survey in surveys.items()}
    here = {topic.uid for topic in topics}
    others = [
        survey.seen_by(visit.caller)
        for survey in board.known()
        if survey.topic.uid not in here and visit.caller.may_use(survey.topic.name) and not is_all
    ]
    history = {topic.uid: board.points(topic) for topic in [*topics, *(other.topic for other in others)]}
    model = {"overview": view(topics, surveys, history, visit.now_ms, others), "following": following}
    return Page("overview.html" if topics or "after" in visit.query else "empty.html", model)


def _look_beyond(visit: Visit) -> None:
    """Where not all topics are on the page: look again at the worst of the others, and at some of them in turn."""
    from ..views.overview import worst_of

    board, control = visit.deps.board, visit.deps.adapters.control
    worst = [survey for survey in board.known() if worst_of(survey, visit.now_ms)]
    for survey in sorted(worst, key=lambda survey: survey.at_ms)[:1]:
        topic = control.topic(survey.topic.name, consistent=False)
        if topic is None or topic.uid != survey.topic.uid:
            board.forget(survey.topic.uid)
        else:
            board.renewed([topic], lambda: visit.has_units(_ENOUGH))
    board.walk(
        lambda after: control.topics(after, _WALKED, consistent=False),
        lambda: visit.has_units(_FOR_THE_PAGE),
    )


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
