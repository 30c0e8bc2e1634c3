"""What is wrong, one case for each group (or topic, or the stage): what does most harm comes first, with its cause."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from ...domain import attention, breaker
from ...domain.errors import HeadraceError
from ...domain.topic import Consumer, ConsumerState, Group, Topic
from ...modes import POLICIES
from ...services.inspect.attempts import History, PastAttempt
from ...services.inspect.survey import Kind, Trouble
from ..visit import Visit

MOST = 12
_MOST_CAUSES = 5
_READ_UNITS = 2  # so much is left, when a cause is looked for, and twice as much where its group must be read
_HARM = {
    attention.Kind.BACKLOG: Kind.ALARM,
    attention.Kind.UNDECIDED: Kind.ALARM,
    attention.Kind.NOT_PROVED: Kind.DEAD,
    attention.Kind.BUDGET: Kind.ALARM,
}


@dataclass(kw_only=True, frozen=True, slots=True)
class Case:
    """What is wrong in one place. `states` are noted as waiting for a person; `troubles` were seen just now, by kind.
    `consumer`: the push consumer that gets nothing, and `failed` its group's last failed attempt."""

    topic: str
    group: str
    states: Sequence[attention.Attention] = ()
    troubles: Mapping[str, Trouble]
    consumer: Consumer | None = None
    more: int = 0  # others of the group that get nothing
    circuit: str = "closed"
    consumers: Sequence[Consumer] | None = None  # at last who was seen last, in a broadcast first
    failed: PastAttempt | None = None

    @property
    def rank(self) -> Kind:
        """How bad it is: that of the worst in it."""
        noted = [_HARM.get(state.kind, Kind.STUCK) for state in self.states]
        noted += [Kind.STUCK] if self.circuit == "open" else []
        return max((*noted, *(trouble.kind for trouble in self.troubles.values())))

    @property
    def others(self) -> list[tuple[attention.Attention, attention.Rule]]:
        """The states that the consumer's own words, or the troubles, do not say already, and what to do."""
        said = {"DISABLED", "PENDING", "CIRCUIT_OPEN"} if self.consumer else set()
        said |= {"BACKLOG"} if "ALARM" in self.troubles else set()
        return [(state, attention.RULES[state.kind]) for state in self.states if state.kind not in said]


def cases(visit: Visit, troubles: Iterable[Trouble], states: Iterable[attention.Attention]) -> list[Case]:
    """The cases, the worst first; the causes of the first few are read, as far as the page's read units reach."""
    places: dict[tuple[str, str], tuple[dict[str, Trouble], list[attention.Attention]]] = {}
    for trouble in troubles:
        places.setdefault((trouble.topic, trouble.group), ({}, []))[0][trouble.kind.name] = trouble
    for state in states:
        places.setdefault((state.topic, state.group), ({}, []))[1].append(state)
    found = [
        Case(topic=topic, group=group, troubles=seen, states=noted)
        for (topic, group), (seen, noted) in places.items()
    ]
    found.sort(key=_harm)
    known = {
        (survey.topic.name, each.group.name): (survey.topic, each.group)
        for survey in visit.deps.board.known_surveys()
        for each in survey.groups
    }
    first = [_with_cause(visit, case, known.get((case.topic, case.group))) for case in found[:_MOST_CAUSES]]
    return [*sorted(first, key=_harm), *found[_MOST_CAUSES:]]


def _harm(case: Case) -> tuple[int, int, str, str]:
    number = max((trouble.number for trouble in case.troubles.values()), default=0)
    return -case.rank, -number, case.topic, case.group


def _with_cause(visit: Visit, case: Case, known: tuple[Topic, Group] | None) -> Case:
    if not case.group or not visit.has_units(_READ_UNITS * (1 if known else 2)):
        return case
    catalog = visit.deps.catalog
    with suppress(HeadraceError):  # it is gone, or cannot be read: then its cause is not known
        topic = known[0] if known else catalog.topic(case.topic)
        group = known[1] if known else catalog.group(topic, case.group)
        consumers = catalog.consumers(topic, group)
        failing = [each for each in consumers if each.is_called and (each.failing_ms or not _is_active(each))]
        history = visit.last_hour(topic, group)
        worst = max(failing, key=lambda each: (not _is_active(each), each.times_opened), default=None)
        is_split = POLICIES[group.mode].per_consumer  # who is silent longest is behind
        circuit = breaker.state(worst.open_until_ms if worst else None, visit.now_ms)
        return replace(
            case,
            consumer=worst,
            more=max(0, len(failing) - 1),
            circuit=circuit,
            consumers=sorted(consumers, key=lambda each: -each.seen_ms if is_split else each.seen_ms),
            failed=last_failed(visit, history, worst.name if worst else None),
        )
    return case


def last_failed(visit: Visit, history: History | None, consumer: str | None = None) -> PastAttempt | None:
    """The newest attempt that failed; what the subscriber said is for those who may consume."""
    failed = history.last_failed(consumer) if history else None
    return failed if failed is None or visit.may_read else replace(failed, answer=None)


def _is_active(consumer: Consumer) -> bool:
    return consumer.state == ConsumerState.ACTIVE
