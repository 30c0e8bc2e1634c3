"""The archive: its contents."""

import re
from datetime import UTC, date, datetime
from typing import Annotated, TypedDict

from ...domain.archive import ArchivedDay, Proof
from ...domain.topic import Caller
from .. import lists
from ..calls import ANY, Context, Response, call
from ..fields import Count, Time, at_or_none, one_of, shown
from ..http import invalid


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


_DAYS = 14
_DAY = re.compile(r"(19[7-9]|2\d\d|[3-9]\d\d)\d-\d\d-\d\d\Z")  # fromisoformat reads much else, such as weeks


@call("GET", "/v1/archive", scopes=ANY, query=("to", "limit"))
def get_archive(context: Context) -> Response[ArchiveView]:
    """List the archived days: `limit` days (14; 31 at most) back from the day `to` (today), UTC."""
    from ...services.inspect.archive import MOST_DAYS

    limit = lists.limit({"limit": str(_DAYS), **context.query})
    if limit > MOST_DAYS:
        raise invalid("limit", f"must be a number from 1 to {MOST_DAYS}")
    last = day_of(context.query.get("to"), context.now_ms)
    days = context.deps.archive_days.back_from(last, limit)
    return Response({"items": [_day(day, content, context.caller) for day, content in days]})


def day_of(text: str | None, now_ms: int) -> date:
    """The day that a query names; today where it names none. Raises Malformed."""
    if text is None:
        return datetime.fromtimestamp(now_ms / 1000, UTC).date()
    try:
        day = date.fromisoformat(text) if _DAY.match(text) else None
    except ValueError:
        day = None
    if day is None:
        raise invalid("to", "must be a day like 2030-01-01")
    return day


def _day(day: str, content: ArchivedDay | None, caller: Caller | None) -> ArchivedDayView:
    if content is None:
        nothing = {"until_hour": None, "written_at": None, "damaged": 0, "bodies_missing": 0}
        return shown(ArchivedDayView, None, day=day, topics=[], **nothing)
    topics = [
        shown(ArchivedTopic, topic, topic=name, proof=content.proof(topic))
        for name, topic in content.topics.items()
        if caller is None or caller.may_use(name)
    ]
    written_at = at_or_none(content.written_ms or None)
    return shown(ArchivedDayView, content, day=day, written_at=written_at, topics=topics)
