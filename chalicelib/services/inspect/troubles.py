"""What is wrong with a group, as seen in a survey."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from ...domain.topic import Topic
from .survey import GroupSurvey, TopicSurvey

_STUCK_MS = 60_000


class Kind(IntEnum):
    """What is wrong with a group; the worst has the highest number."""

    RETRYING = 1
    PAUSED = 2
    STUCK = 3  # the oldest waits for long, and nobody is at work
    ALARM = 4  # more waits than the topic's alarm allows
    DEAD = 5


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that is wrong, and how much of it."""

    kind: Kind
    topic: str
    group: str
    number: int
    at_least: bool = False
    since_ms: int | None = None


def worst_of(survey: TopicSurvey, now_ms: int) -> int:
    """The rank of the worst problem of a topic; 0: there is none."""
    kinds = [each.kind for group in survey.groups for each in of_group(survey.topic, group, now_ms)]
    return max(kinds, default=0)


def of_group(topic: Topic, survey: GroupSurvey, now_ms: int) -> list[Trouble]:
    """What is wrong with a group."""
    name, backlog, oldest_ms = survey.group.name, survey.backlog, survey.oldest_ms
    troubles = []
    if survey.dead:
        troubles.append(Trouble(Kind.DEAD, topic.name, name, survey.dead, survey.more_dead))
    if topic.is_over_alarm(backlog):
        troubles.append(Trouble(Kind.ALARM, topic.name, name, backlog, since_ms=oldest_ms))
    if survey.group.paused and backlog:
        troubles.append(Trouble(Kind.PAUSED, topic.name, name, backlog, since_ms=oldest_ms))
    elif oldest_ms and now_ms - oldest_ms > _STUCK_MS and not survey.in_flight:
        troubles.append(Trouble(Kind.STUCK, topic.name, name, backlog, since_ms=oldest_ms))
    if survey.retrying:
        troubles.append(Trouble(Kind.RETRYING, topic.name, name, survey.retrying, survey.more_retrying))
    return troubles
