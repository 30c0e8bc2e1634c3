"""The archive: days and topics, proved or not. And replays, which send of it again."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from ...api import parse
from ...api.http import invalid
from ...api.resources.archive import check_reach, day_of, where
from ...domain.archive import ArchivedDay
from ...domain.errors import HeadraceError, Malformed
from ...domain.times import DAY_MS
from .. import actions, forms
from ..visit import Page, Shown, Visit

_DAYS = 14
_CHOICES = ("tag", "key", "where", "into", "group", "rate")


def archive(visit: Visit) -> Shown:
    """Two weeks of it: topics by days."""
    try:
        last = day_of(visit.query.get("to") or None, visit.now_ms)
    except Malformed:
        last = day_of(None, visit.now_ms)
    days = visit.deps.archive_days.back_from(last, _DAYS)
    topics = sorted({name for _, day in days if day for name in day.topics if visit.caller.may_use(name)})
    model = {
        "days": days,
        "topics": topics,
        "is_on": visit.deps.adapters.archive,
        "archive_days": visit.deps.adapters.archive_days,
        "earlier": (last - timedelta(days=_DAYS)).isoformat(),
    }
    return Page("archive.html", model)


def replays(visit: Visit) -> Shown:
    """Replays of a topic's messages, the newest first; a form for another one, with a preview."""
    topic = visit.topic().name
    model = actions.listing(visit, "list_replays", 20, visit.query.get("page"), {"topic": topic})
    preview, problem = (None, None) if model["refusal"] else _preview(visit, topic)
    return Page("replays.html", model | {"topic": topic, "preview": preview, "problem": problem})


def _preview(visit: Visit, topic: str) -> tuple[dict[str, Any] | None, HeadraceError | None]:
    """What a replay of this span may send at most: what is archived of its days. Or what is wrong with the form."""
    if not visit.query.get("from") or not visit.query.get("to"):
        return None, None
    span = {name: forms.whole_time(visit.query[name]) for name in ("from", "to")}
    fields = span | {name: visit.query[name] for name in _CHOICES if visit.query.get(name)}
    try:
        from_ms, to_ms = (parse.time_ms(text, name) for name, text in span.items())
        if from_ms >= to_ms:
            raise invalid("to", "must be later than from")
        where(fields.get("where"))
        check_reach(visit.caller, topic, fields.get("into", topic), fields.get("group"))
        action = forms.of({**fields, "call": "create_replay", "topic": topic}).action
    except HeadraceError as error:
        return None, error
    last, first = _day(to_ms - 1), _day(from_ms)
    count = min((last - first).days + 1, _DAYS)
    days = visit.deps.archive_days.back_from(last, count)
    return {
        "fields": fields,
        "action": action,
        "days": [(day, _messages(day_counts, topic), day_counts) for day, day_counts in days],
        "at_most": sum(_messages(day_counts, topic) for _, day_counts in days),
        "is_cut": (last - first).days + 1 > _DAYS,
    }, None


def _day(ms: int) -> date:
    return date.fromordinal(date(1970, 1, 1).toordinal() + ms // DAY_MS)


def _messages(day: ArchivedDay | None, topic: str) -> int:
    return day.topics[topic].messages if day and topic in day.topics else 0
