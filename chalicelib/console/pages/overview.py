"""The first page: what is wrong, worst first, and every topic in one line."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest
from typing import NamedTuple

from ...domain.topic import Topic
from ...services.inspect.attempts import History, together
from ...services.inspect.survey import Kind, TopicSurvey
from ..visit import Page, Shown, Visit
from .cases import MOST, cases

_LINES = 32
_ROWS = 100
_WALKED = 4
_FOR_THE_PAGE = 12  # so much is left to it, when a topic of another page is looked at
_MOST_TROUBLED = 50
_MOST_STATES = 200
_ENOUGH = 11  # what one topic may cost at most, about: so much is left when another is begun
_MOST_OTHERS = 16
_RATE_MS = 15_000


def overview(visit: Visit) -> Shown:
    """All is well, or the worst thing first; topics by trouble."""
    topics, next_start = _topics(visit, visit.name_before)
    is_all = next_start is None and "after" not in visit.query
    board = visit.deps.board
    troubles = {} if is_all or not visit.caller.has_all_groups else _noted_ranks(visit)
    if not is_all and not board.is_turn_of(topics):
        _look_at_others(visit, troubles)
    surveys = board.renew(topics, visit.may_go_on(_ENOUGH))
    surveys = {uid: survey.seen_by(visit.caller) for uid, survey in surveys.items()}
    here = {topic.uid for topic in topics}
    others = [
        _line(visit, survey.topic, survey.seen_by(visit.caller))
        for survey in board.known_surveys()
        if survey.topic.uid not in here and visit.caller.may_use(survey.topic.name) and not is_all
    ]
    worst = nlargest(_MOST_OTHERS, (line for line in others if line.worst), key=lambda line: line.worst or 0)
    lines = [*(_line(visit, topic, surveys.get(topic.uid)) for topic in topics), *worst]
    shown = [line.survey for line in lines if line.survey]
    names = {survey.topic.name for survey in shown}
    other_troubles = [(name, Kind(rank)) for name, rank in troubles.items() if name not in names]
    noted = visit.deps.adapters.marks.attention(None, _MOST_STATES)
    states = [state for state in noted if state.is_seen_by(visit.caller)]
    found = cases(visit, [each for survey in shown for each in survey.troubles(visit.now_ms)], states)
    lines.sort(key=lambda line: line.order)
    histories = {line.topic.name: last_hour(visit, line.survey) for line in lines if line.survey}
    model = {
        "lines": lines,
        "groups": [group for survey in shown for group in survey.groups],
        "groups_left": sum(survey.groups_left for survey in shown),
        "is_whole": all(survey.is_whole for survey in shown),
        "following": visit.sealed_name(next_start),
        "uncounted": other_troubles,
        "cases": found[:MOST],
        "more_cases": max(0, len(found) - MOST),
        "needs_person": bool(states),
        "histories": histories,
        "last_hour": together(histories.values()),
    }
    return Page("empty.html" if is_all and not topics else "overview.html", model)


def last_hour(visit: Visit, survey: TopicSurvey) -> History | None:
    """The latest attempts of a topic's groups in the last hour, as far as they are known or may be read."""
    return together(visit.last_hour(survey.topic, each.group) for each in survey.groups)


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
        if not visit.has_units(_FOR_THE_PAGE):
            break
        trouble = _rank_now(visit, name, surveys.get(name))
        if name in ranks and not trouble:
            del ranks[name]
            deps.adapters.marks.note_moving(name)  # so that it is noted again
    topics, may_go_on = deps.adapters.control.topics, visit.may_go_on(_FOR_THE_PAGE)
    deps.board.walk(lambda after: topics(after, _WALKED, consistent=False), may_go_on)


def _rank_now(visit: Visit, name: str, before: TopicSurvey | None) -> int:
    """How bad it is with a topic now; 0 where it is gone."""
    board = visit.deps.board
    topic = visit.deps.adapters.control.topic(name, consistent=False)
    if before and (topic is None or topic.uid != before.topic.uid):
        board.forget(before.topic.uid)
    if topic is None:
        return 0
    survey = board.renew([topic], visit.may_go_on(_ENOUGH)).get(topic.uid)
    return (survey.worst_trouble(visit.now_ms) or 0) if survey else 1


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


class Line(NamedTuple):
    """One topic; without a survey, it was not counted yet. A rate is None where it is not known."""

    topic: Topic
    survey: TopicSurvey | None = None
    worst: Kind | None = None
    accepted_rate: float | None = None
    settled_rate: float | None = None

    @property
    def order(self) -> tuple[int, int, str]:
        """The worst come first, then those with the largest backlogs."""
        groups = self.survey.groups if self.survey else ()
        return -(self.worst or 0), -sum(group.backlog for group in groups), self.topic.name


def _line(visit: Visit, topic: Topic, survey: TopicSurvey | None) -> Line:
    if survey is None:
        return Line(topic)
    return Line(topic, survey, survey.worst_trouble(visit.now_ms), *rates_of(visit, topic))


def rates_of(visit: Visit, topic: Topic) -> tuple[float | None, float | None]:
    """How many messages a second it accepted and settled lately; what was settled is known of all groups together."""
    points = visit.deps.board.points(topic)
    settled = [(point.at_ms, point.settled) for point in points if visit.caller.has_all_groups]
    return _rate_of([(point.at_ms, point.accepted) for point in points]), _rate_of(settled)


def _rate_of(series: Sequence[tuple[int, int]]) -> float | None:
    """How much a second a count rose lately; None where it was seen once only."""
    if len(series) < 2:
        return None
    end_ms, end = series[-1]
    before = (point for point in reversed(series[:-1]) if end_ms - point[0] >= _RATE_MS)
    start_ms, start = next(before, series[0])
    return max(0, end - start) * 1_000 / max(1, end_ms - start_ms)
