"""The first page: what is wrong, and every topic in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..http import Page, Shown, Visit, page

if TYPE_CHECKING:
    from ...domain.topic import Topic
    from ...services.inspect.survey import TopicSurvey

_LINES = 32
_ROWS = 100
_WALKED = 4
_FOR_THE_PAGE = 12  # so much is left to it, when a topic of another page is looked at
_MOST_TROUBLED = 50
_ENOUGH = 11  # what one topic may cost at most, about: so much is left when another is begun


@page("GET", "/console")
def overview(visit: Visit) -> Shown:
    """All is well, or the worst thing first; topics by trouble."""
    from ...services.inspect.survey import Kind
    from ..views.overview import overview as view

    topics, next_start = _topics(visit, visit.name_before)
    is_all = next_start is None and "after" not in visit.query
    board = visit.deps.board
    troubles = {} if is_all or not visit.caller.has_all_groups else _noted_ranks(visit)
    if not is_all and not board.is_turn_of(topics):
        _look_at_others(visit, troubles)
    surveys = board.renew(topics, lambda: visit.has_read_units(_ENOUGH))
    surveys = {uid: survey.seen_by(visit.caller) for uid, survey in surveys.items()}
    here = {topic.uid for topic in topics}
    others = [
        survey.seen_by(visit.caller)
        for survey in board.known_surveys()
        if survey.topic.uid not in here and visit.caller.may_use(survey.topic.name) and not is_all
    ]
    history = {topic.uid: board.points(topic) for topic in [*topics, *(other.topic for other in others)]}
    may_sum = visit.caller.has_all_groups
    model_view = view(topics, surveys, history, visit.now_ms, others, may_sum=may_sum)
    names = {line.topic.name for line in model_view.lines if line.survey}
    other_troubles = [(name, Kind(rank)) for name, rank in troubles.items() if name not in names]
    model = {"overview": model_view, "following": visit.sealed_name(next_start), "uncounted": other_troubles}
    return Page("empty.html" if is_all and not topics else "overview.html", model)


def _noted_ranks(visit: Visit) -> dict[str, int]:
    """The topics that are noted to be in trouble, with how bad it is, the worst first."""
    worst = visit.deps.adapters.marks.worst(_MOST_TROUBLED)
    return {name: rank for name, rank in worst.items() if visit.caller.may_use(name)}


def _look_at_others(visit: Visit, ranks: dict[str, int]) -> None:
    """Where not all topics are on the page: look at the worst of the others, and at some in turn. Those that are in
    trouble no more are taken from `ranks`."""
    deps, now_ms = visit.deps, visit.now_ms
    surveys = {survey.topic.name: survey for survey in deps.board.known_surveys()}
    in_trouble = {name for name, survey in surveys.items() if survey.worst_trouble(now_ms)}
    last_ms = {name: surveys[name].at_ms if name in surveys else 0 for name in {*ranks, *in_trouble}}
    for name in sorted(last_ms, key=lambda name: (last_ms[name], -ranks.get(name, 0), name)):
        if not visit.has_read_units(_FOR_THE_PAGE):
            break
        trouble = _rank_now(visit, name, surveys.get(name))
        if name in ranks and not trouble:
            del ranks[name]
            deps.adapters.marks.note_moving(name)  # so that it is noted anew
    deps.board.walk(
        lambda after: deps.adapters.control.topics(after, _WALKED, consistent=False),
        lambda: visit.has_read_units(_FOR_THE_PAGE),
    )


def _rank_now(visit: Visit, name: str, before: TopicSurvey | None) -> int:
    """How bad it is with a topic now; 0 where it is gone."""
    board = visit.deps.board
    topic = visit.deps.adapters.control.topic(name, consistent=False)
    if before and (topic is None or topic.uid != before.topic.uid):
        board.forget(before.topic.uid)
    if topic is None:
        return 0
    survey = board.renew([topic], lambda: visit.has_read_units(_ENOUGH)).get(topic.uid)
    return (survey.worst_trouble(visit.now_ms) or 0) if survey else 1


def _topics(visit: Visit, after: str) -> tuple[list[Topic], str | None]:
    """A page of the topics that the token may use, by name, and behind which one the next begins."""
    caller, control = visit.caller, visit.deps.adapters.control
    topics: list[Topic] = []
    start = caller.behind(after)
    while start is not None and visit.has_read_units(_ENOUGH):
        rows = control.topics(start or None, min(_ROWS, _LINES + 1), consistent=False)
        topics += [topic for topic in rows if caller.may_use(topic.name)]
        if len(topics) > _LINES:
            return topics[:_LINES], topics[_LINES - 1].name
        if len(rows) < _LINES + 1:
            return topics, None
        start = caller.behind(rows[-1].name)
    return topics, start
