"""The archive's days."""

from typing import Annotated, TypedDict

from ...domain.archive import ArchivedDay, Proof, TopicDay
from ...domain.topic import Caller
from .common import Count, Time, at, one_of


class ArchivedTopic(TypedDict):
    """A topic's part of a day. PROVED: the day is closed, and each of its offsets is accounted for. OPEN: more
    messages may come. HOLES: `missing` offsets were found nowhere, or journal objects of the day could not be read."""

    topic: str
    proof: Annotated[str, one_of(*Proof)]
    messages: Count
    deliveries: Count
    missing: Count


class ArchivedDayView(TypedDict):
    """A day: the hour up to which it is archived (24: all of it; null: nothing), and its topics."""

    day: str
    until_hour: Count | None
    written_at: Time | None
    damaged: Count
    bodies_missing: Count
    topics: list[ArchivedTopic]


class ArchiveView(TypedDict):
    """Days, the latest first, with the topics that the token may use."""

    items: list[ArchivedDayView]


def view(days: list[tuple[str, ArchivedDay | None]], caller: Caller | None) -> ArchiveView:
    """Days as the manifests tell them."""
    return {"items": [_day(day, content, caller) for day, content in days]}


def _day(day: str, content: ArchivedDay | None, caller: Caller | None) -> ArchivedDayView:
    if content is None:
        return {
            "day": day,
            "until_hour": None,
            "written_at": None,
            "damaged": 0,
            "bodies_missing": 0,
            "topics": [],
        }
    visible = {n: topic for n, topic in content.topics.items() if caller is None or caller.may_use(n)}
    return {
        "day": day,
        "until_hour": content.until_hour,
        "written_at": at(content.written_ms) if content.written_ms else None,
        "damaged": content.damaged,
        "bodies_missing": content.bodies_missing,
        "topics": [_topic(content, name, topic) for name, topic in visible.items()],
    }


def _topic(day: ArchivedDay, name: str, topic: TopicDay) -> ArchivedTopic:
    return {
        "topic": name,
        "proof": day.proof(topic),
        "messages": topic.messages,
        "deliveries": topic.deliveries,
        "missing": topic.missing,
    }
