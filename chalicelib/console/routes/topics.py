"""One topic: its shards as a strip, its groups, its settings."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ...api.parse import whole_number
from ...domain.errors import Unavailable
from ..http import Page, Shown, Visit, page

if TYPE_CHECKING:
    from ...domain.topic import Topic
    from ...services.inspect.survey import TopicSurvey

_RESERVE = 3  # what one group may cost, about


@page("GET", "/console/topics/{topic}")
def topic_page(visit: Visit) -> Shown:
    """The strip, and the groups."""
    from ..views import strip
    from ..views.overview import rate_of, spark

    topic = visit.topic()
    first = first_shard(visit, topic)
    survey = visit.deps.surveyor.survey(
        topic, whole=True, first_shard=first, may_go_on=lambda: visit.has_read_units(_RESERVE)
    )
    if survey.is_whole:
        visit.deps.board.keep(survey)
    survey = survey.seen_by(visit.caller)
    points = visit.deps.board.points(topic)
    may_sum = visit.caller.has_all_groups  # what was settled is known of all groups together
    model = {
        "topic": topic,
        "survey": survey,
        "strips": strip.strips(survey, _names(visit, topic, survey)),
        "troubles": survey.troubles(visit.now_ms),
        "accepted_rate": rate_of([(point.at_ms, point.accepted) for point in points]),
        "settled_rate": rate_of([(point.at_ms, point.settled) for point in points if may_sum]),
        "spark": spark([(point.at_ms, point.accepted) for point in points]),
        "next_shard": first + len(survey.shards) if first + len(survey.shards) < topic.shards else None,
        "first_shard": first,
    }
    return Page("topic.html", model)


def first_shard(visit: Visit, topic: Topic) -> int:
    """The shard that the page begins with."""
    return min(whole_number(visit.query.get("shard", ""), 4) or 0, topic.shards - 1)


def _names(visit: Visit, topic: Topic, survey: TopicSurvey) -> dict[str, str]:
    """The names of a broadcast's consumers by uid: read already, for they say whose cursors there are."""
    return {
        uid: name
        for group in survey.groups
        if any(each.key.consumer_uid for each in group.shards)
        for uid, name in visit.deps.catalog.consumer_names(topic, group.group).items()
    }


@page("GET", "/console/topics/{topic}/settings")
def topic_settings(visit: Visit) -> Shown:
    """The topic's settings, changed in place; and its end, with what would go with it, unless that cannot be read."""
    from .. import undo

    topic = visit.topic(consistent=True)
    fields = {**undo.topic_fields(topic), "shards": str(topic.shards)}
    survey = None
    with suppress(Unavailable):
        survey = visit.deps.surveyor.survey(
            topic, ages=False, may_go_on=lambda: visit.has_read_units(_RESERVE)
        )
        survey = survey.seen_by(visit.caller)
    return Page("topic_settings.html", {"topic": topic, "fields": fields, "survey": survey})
