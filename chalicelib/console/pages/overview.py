"""The first page: what is wrong, worst first, and every topic in one line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...domain.meter import Reading
from ...domain.topic import Topic
from ...services.inspect.attempts import History, together
from ...services.inspect.survey import Kind, TopicSurvey, Trouble
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
    model_view = overview_of(topics, surveys, history, visit.now_ms, others, may_sum=may_sum)
    names = {line.topic.name for line in model_view.lines if line.survey}
    other_troubles = [(name, Kind(rank)) for name, rank in troubles.items() if name not in names]
    noted = visit.deps.adapters.marks.attention(None, _MOST_STATES)
    states = [state for state in noted if state.is_seen_by(visit.caller)]
    found = cases(visit, model_view.troubles, states)
    histories = {line.topic.name: last_hour(visit, line.survey) for line in model_view.lines if line.survey}
    model = {
        "overview": model_view,
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
    return together(
        visit.deps.board.last_hour(survey.topic, each.group, visit.has_read_units) for each in survey.groups
    )


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
            deps.adapters.marks.note_moving(name)  # so that it is noted again
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


@dataclass(kw_only=True, frozen=True, slots=True)
class Line:
    """One topic. What is None was not counted yet."""

    topic: Topic
    survey: TopicSurvey | None = None
    worst: Kind | None = None
    backlog: int | None = None
    in_flight: int | None = None
    retrying: int | None = None
    dead: int | None = None
    oldest_ms: int | None = None
    more_retrying: bool = False
    more_dead: bool = False
    accepted_rate: float | None = None
    settled_rate: float | None = None


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything that the page shows. `unseen` topics were not counted yet."""

    troubles: Sequence[Trouble]
    lines: Sequence[Line]
    unseen: int

    @property
    def backlog(self) -> int:
        return sum(line.backlog or 0 for line in self.lines)

    @property
    def groups_left(self) -> int:
        """How many groups are in no sum: there was no time, or a row cannot be read."""
        return sum(line.survey.groups_left for line in self.lines if line.survey)

    @property
    def is_whole(self) -> bool:
        """Are all groups of all lines in the sums?"""
        return all(line.survey is None or line.survey.is_whole for line in self.lines)

    @property
    def in_flight(self) -> int:
        return sum(line.in_flight or 0 for line in self.lines)

    @property
    def failing(self) -> int:
        return sum((line.retrying or 0) + (line.dead or 0) for line in self.lines)

    @property
    def more_failing(self) -> bool:
        """May more have failed than are counted?"""
        return not self.is_whole or any(line.more_retrying or line.more_dead for line in self.lines)

    @property
    def oldest_ms(self) -> int | None:
        return min((line.oldest_ms for line in self.lines if line.oldest_ms), default=None)

    @property
    def accepted_rate(self) -> float | None:
        return _sum(line.accepted_rate for line in self.lines)

    @property
    def settled_rate(self) -> float | None:
        return _sum(line.settled_rate for line in self.lines)


def overview_of(
    topics: Sequence[Topic],
    surveys: Mapping[str, TopicSurvey],
    history: Mapping[str, Sequence[Reading]],
    now_ms: int,
    others: Sequence[TopicSurvey] = (),
    *,
    may_sum: bool = True,
) -> Overview:
    """The overview of these topics; surveys and history by the topics' uids. Of `others` those with which something is
    wrong are shown with them. `may_sum`: what was settled, which is known of all groups together, may be shown."""
    worst = sorted(
        (survey for survey in others if survey.worst_trouble(now_ms)),
        key=lambda survey: -(survey.worst_trouble(now_ms) or 0),
    )[:_MOST_OTHERS]
    surveys = {**surveys, **{survey.topic.uid: survey for survey in worst}}
    topics = [*topics, *(survey.topic for survey in worst)]
    lines = [
        _line(topic, surveys.get(topic.uid), history.get(topic.uid, ()), now_ms, may_sum=may_sum)
        for topic in topics
    ]
    lines.sort(key=lambda line: (-(line.worst or 0), -(line.backlog or 0), line.topic.name))
    troubles = [trouble for survey in surveys.values() for trouble in survey.troubles(now_ms)]
    return Overview(troubles, lines, sum(line.survey is None for line in lines))


def _line(
    topic: Topic, survey: TopicSurvey | None, points: Sequence[Reading], now_ms: int, *, may_sum: bool
) -> Line:
    if survey is None:
        return Line(topic=topic)
    groups = survey.groups
    return Line(
        topic=topic,
        survey=survey,
        worst=survey.worst_trouble(now_ms),
        backlog=sum(group.backlog for group in groups),
        in_flight=sum(group.in_flight for group in groups),
        retrying=sum(group.retrying for group in groups),
        dead=sum(group.dead for group in groups),
        oldest_ms=min((group.oldest_ms for group in groups if group.oldest_ms), default=None),
        more_retrying=any(group.more_retrying for group in groups),
        more_dead=any(group.more_dead for group in groups),
        accepted_rate=rate_of([(point.at_ms, point.accepted) for point in points]),
        settled_rate=rate_of([(point.at_ms, point.settled) for point in points if may_sum]),
    )


def rate_of(series: Sequence[tuple[int, int]]) -> float | None:
    """How much a second a count rose lately; None where it was seen once only."""
    if len(series) < 2:
        return None
    end_ms, end = series[-1]
    start_ms, start = next(
        (point for point in reversed(series[:-1]) if end_ms - point[0] >= _RATE_MS), series[0]
    )
    return max(0, end - start) * 1_000 / max(1, end_ms - start_ms)


def _sum(rates: Iterable[float | None]) -> float | None:
    rates_known = [each for each in rates if each is not None]
    return sum(rates_known) if rates_known else None
