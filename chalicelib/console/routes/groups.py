"""One group: its way through the shards, its leases, its consumers, its settings; and a seek, previewed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...domain.errors import HeadraceError
from ..http import Page, Shown, Visit, page

if TYPE_CHECKING:
    from ...domain.message import Message
    from ...domain.topic import Group, Topic
    from ...services.inspect.survey import TopicSurvey


@page("GET", "/console/topics/{topic}/groups/{group}")
def group_page(visit: Visit) -> Shown:
    """The strip of this group alone, its leases, and its consumers."""
    from ...domain import ladder
    from ..views import group as view
    from ..views import strip
    from ..views.blocked import blocked_units
    from .topics import first_shard

    deps = visit.deps
    topic, group = visit.group()
    first = first_shard(visit, topic)
    survey = deps.surveyor.survey(topic, only=group, whole=True, first_shard=first)
    consumers = deps.catalog.consumers(topic, group)
    assignment = deps.adapters.control.assignment(topic, group)
    names = {consumer.uid: consumer.name for consumer in consumers}
    model: dict[str, Any] = {
        "topic": topic,
        "group": group,
        "survey": survey,
        "of": survey.groups[0],
        "troubles": survey.troubles(visit.now_ms),
        "strips": strip.strips(survey, names),
        "leases": view.leases(survey.groups[0], names),
        "blocked": [
            (each, _message_at(visit, topic, each.shard, each.offset))
            for each in blocked_units(survey.groups[0], names)
        ],
        "members": view.members(consumers, assignment, visit.now_ms),
        "assignment": assignment,
        "retry": group.retry or topic.retry,
        "waits": ladder.waits(group.retry or topic.retry)[:12],
        "next_shard": first + len(survey.shards) if first + len(survey.shards) < topic.shards else None,
    }
    # Charts are no moving part: they are read with the page, and not again every few seconds.
    model |= {} if visit.wants_fragment else _lag(visit, topic, group, survey)
    return Page("group.html", model)


def _lag(visit: Visit, topic: Topic, group: Group, survey: TopicSurvey) -> dict[str, Any]:
    """The group's backlog over time in each of the shards that are shown, as far as the page may read."""
    from ...domain.meter import WINDOWS
    from ..views.rates import shard_charts
    from .rates import rows_for

    name = visit.query.get("window", "")
    name = name if name in WINDOWS else "1h"
    groups = visit.deps.catalog.groups(topic)
    rows = rows_for(visit, topic, len(groups))
    now = survey.reading if survey.is_whole else None
    buckets = visit.deps.rate_charts.of(topic, WINDOWS[name], now, only=group, most_rows=rows)
    shards = [extent.shard for extent in survey.shards]
    lag = shard_charts(buckets, WINDOWS[name], visit.now_ms, group.name, shards)
    return {"lag": lag, "window": name, "windows": list(WINDOWS)}


def _message_at(visit: Visit, topic: Topic, shard: int, offset: int) -> Message | None:
    """The message that lies there; None where it is not read."""
    if not visit.has_read_units(2):
        return None
    reader = visit.deps.reader
    return reader.fetch(topic.shard_key(shard), [offset], reader.recent())[offset].message


@page("GET", "/console/topics/{topic}/groups/{group}/settings")
def group_settings(visit: Visit) -> Shown:
    """The group's settings, its seek with a preview, its end."""
    from .. import undo

    topic, group = visit.group(consistent=True)
    to = visit.query.get("to", "").strip()
    survey = visit.deps.surveyor.survey(topic, only=group, whole=bool(to), ages=False)
    preview, problem = None, None
    if to:
        try:
            preview = _preview(visit, topic, survey, to)
        except HeadraceError as error:
            problem = error
    model = {
        "topic": topic,
        "group": group,
        "fields": undo.group_fields(group),
        "to": to,
        "preview": preview,
        "problem": problem,
        "survey": survey,
        "of": survey.groups[0],
        "consumers": len(visit.deps.catalog.consumers(topic, group)),
    }
    return Page("group_settings.html", model)


def _preview(visit: Visit, topic: Topic, survey: TopicSurvey, to: str) -> Any:
    """What a seek would mean: how many messages come again, and how many are passed over."""
    from ...api import parse
    from ...domain.topic import EARLIEST, LATEST
    from ..forms import is_whole_number
    from ..views import group as view

    at_ms = None
    if to not in (EARLIEST, LATEST) and not is_whole_number(to):
        at_ms = parse.time_ms(to, "to", f'"{EARLIEST}", "{LATEST}", an offset')
    targets: dict[int, int] = {}
    for extent in survey.shards:
        if at_ms is not None:
            if not visit.has_read_units(3):
                break
            targets[extent.shard] = visit.deps.surveyor.offset_at(
                topic, extent, at_ms, lambda: visit.has_read_units(1)
            )
        elif to == LATEST:
            targets[extent.shard] = extent.tail + 1
        else:
            offset = 0 if to == EARLIEST else int(to)
            targets[extent.shard] = min(max(offset, extent.first), extent.tail + 1)
    return view.seek_preview(survey.groups[0], targets, whole=len(targets) == topic.shards)
