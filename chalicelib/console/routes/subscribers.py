"""A consumer that is called: how it is, what it answered, a test, its secret, and what failed since a moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...api import lists, parse
from ...domain.errors import HeadraceError, NotFound
from ..http import Page, SeeOther, Shown, Visit, page
from .messages import check_may_read, whole_time

if TYPE_CHECKING:
    from ...domain.topic import Consumer, Group, Topic

_SUBSCRIBER = "/console/topics/{topic}/groups/{group}/consumers/{consumer}"
_ROWS = 50
_MOST_COUNTED = 500  # ten reads, which is where a page ends anyway
_READ_UNITS = 5  # of one read of the traces of a broadcast
_LEFT = 6  # so much is left, when another page of dead letters is read


@page("GET", _SUBSCRIBER)
def subscriber(visit: Visit) -> Shown:
    """Its state and why, its circuit, its latest attempts; and what can be done."""
    from ...services.inspect.trace import latest_attempts
    from ..snippets import verification_snippets
    from ..views import group as group_view
    from ..views import subscriber as view

    deps = visit.deps
    topic, group, who = _find(visit)
    assignment = deps.adapters.control.assignment(topic, group)
    (member,) = group_view.members([who], assignment, visit.now_ms)
    failures, problem = _failed_since(visit, topic, group)
    history = latest_attempts(
        deps.adapters.traces,
        topic,
        group,
        who,
        member.shards or (),
        view.MOST_TICKS,
        may_go_on=lambda: visit.has_read_units(_READ_UNITS),
    )
    is_admin = "admin" in visit.caller.scopes
    model: dict[str, Any] = {
        "topic": topic,
        "group": group,
        "member": member,
        "target": member.target_for(visit.session.token),
        "is_admin": is_admin,
        "history": history,
        "ticks": view.ticks(history.attempts),
        "overlap_until_ms": who.overlap_until_ms(visit.now_ms),
        "snippets": verification_snippets(),
        "failed": failures,
        "problem": problem,
    }
    return Page("subscriber.html", model)


def _find(visit: Visit) -> tuple[Topic, Group, Consumer]:
    topic, group = visit.group()
    return topic, group, visit.deps.catalog.consumer(topic, group, visit.params["consumer"])


def _failed_since(
    visit: Visit, topic: Topic, group: Group
) -> tuple[dict[str, Any] | None, HeadraceError | None]:
    """How many dead letters a moment has behind it; or what is wrong with the moment."""
    text = visit.query.get("since", "").strip()
    if not text:
        return None, None
    since = whole_time(text)
    try:
        check_may_read(visit)
        letter_filter = lists.letter_filter({"since": since})
    except HeadraceError as error:
        return None, error
    letters, position = visit.deps.letter_lookup.page(
        topic,
        group,
        letter_filter,
        None,
        _MOST_COUNTED,
        rows_per_read=_ROWS,
        may_go_on=lambda: visit.has_read_units(_LEFT),
    )
    return {"since": since, "number": len(letters), "at_least": position is not None}, None


@page("POST", f"{_SUBSCRIBER}/test")
def subscriber_test(visit: Visit) -> Shown:
    """A test event: what was sent and what came back, side by side."""
    from .. import deeds

    answer = deeds.do(visit, deeds.Deed("test_consumer", visit.params, body={}))
    return Page("subscriber_test.html", {"params": visit.params, "tested": answer})


@page("GET", "/console/topics/{topic}/places/{shard}/{offset}")
def place(visit: Visit) -> Shown:
    """The message at a place in the log: attempts know no more of it."""
    check_may_read(visit)
    topic = visit.topic()
    shard, offset = (parse.whole_number(visit.params[name], 15) for name in ("shard", "offset"))
    if shard is not None and offset is not None and shard < topic.shards:
        rows = visit.deps.adapters.log.read_back(topic.shard_key(shard), offset, 1)
        for row in rows:
            if row.first <= offset < row.end and (message := row.message(shard, offset)):
                return SeeOther(visit.links.to("topics", topic.name, "messages", message.id))
    raise NotFound("MESSAGE_NOT_FOUND", "There is no message at this place: it has expired, perhaps.")
