"""One message: its body in several forms, its time line with a lane for each group, and where it is for each of them.

The line is to scale: the past on the left, from the first event to the last (or to now, while something is under way);
what is to come on the right, in a scale of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ...api.parse import whole_number
from ...domain.errors import NotFound
from ...domain.message import Draft, Message, holds_json, overall
from ...domain.retry_policy import max_attempts, wait_ms
from ...domain.status import OVER
from ...domain.topic import Group, Topic
from ...domain.transaction import Transaction
from ...services.core.bodies import shown_body
from ...services.inspect.fate import Fates
from ...services.inspect.lookup import AnyMessage, status_before_log
from ...services.inspect.statuses import DeliveryStatus
from ...services.inspect.trace import Event
from ..visit import Page, SeeOther, Shown, Visit

_FOR_THE_TRACE = 10  # read units that are left for what the page shows of the message that it looks for
_MOST_ROWS = 16  # of a retry lane
_ENOUGH = 9  # so much is left when another group is begun
WIDTH = 1_000
_PAST = 720  # of the width, where something is to come
_NARROWEST = 4.0
_MOST_COMING = 4
_MOST_BYTES = 65_536
_HEX_BYTES = 2_048
FORMS = ("pretty", "raw", "hex")


def message(visit: Visit) -> Shown:
    """A message: body, facts, and its time line."""
    deps = visit.deps
    topic = visit.topic()
    id = visit.params["id"]
    result = _find_with_dead_letters(visit, topic, id)
    whole = shown_body(deps.adapters.blobs, topic, result.message)
    form = visit.query.get("as", "pretty")
    form = form if form in FORMS else "pretty"
    model: dict[str, Any] = {
        "message": whole,
        "form": form,
        "body": body_as(whole.draft, form),
        "is_cut": is_cut(whole.draft, form),
        "editable": editable_body(whole.draft),
        "id": id,
        **_status_and_path(visit, topic, result),
    }
    return Page("message.html", model)


def _find_with_dead_letters(visit: Visit, topic: Topic, id: str) -> AnyMessage:
    """The message, or what a dead letter has of it, as far as the page's read units reach."""
    may_use, may_go_on = visit.caller.may_use_group, visit.may_go_on(_FOR_THE_TRACE)
    return visit.deps.lookup.find_with_dead_letters(topic, id, may_use, may_go_on)


def _own_first(visit: Visit, groups: Iterable[Group]) -> list[Group]:
    """The groups, those that the visitor may see before the others: these count for what the page says of the
    message, as far as its read units reach."""
    return sorted(groups, key=lambda group: not visit.caller.may_use_group(group.name))


def _status_and_path(visit: Visit, topic: Topic, result: Any) -> dict[str, Any]:
    """The status of a message, and its path to there."""
    deps = visit.deps
    if not isinstance(result, Message):
        events = deps.tracer.path_before_log(result)
        due_ms = None if isinstance(result, Transaction) else result.timer.due_ms
        line = time_line(events, {}, {"": [due_ms]} if due_ms else {}, visit.now_ms)
        return _trace_model(visit, events, {}, line) | {
            "status": status_before_log(result),
            "due_ms": due_ms,
            "kind": type(result).__name__,
        }
    topic_statuses = deps.statuses.of_topic(topic)
    only = visit.query.get("group") or None
    groups = _own_first(visit, (group for group in topic_statuses.groups() if only in (None, group.name)))
    statuses = {}
    looked_at: list[Group] = []
    for group in groups:
        if looked_at and not visit.has_units(8):
            break
        looked_at.append(group)
        if status := topic_statuses.delivery(group, result):
            statuses[group.name] = status
    is_whole = only is None and len(looked_at) == len(groups)
    word = overall(result.draft, [status.status for status in statuses.values()])
    may_see = visit.caller.may_use_group
    own = [group for group in looked_at if may_see(group.name)]
    deliveries = {name: status for name, status in statuses.items() if may_see(name)}
    events = deps.tracer.path(topic, result, own, topic_statuses)
    steps = {
        group.name: next_attempts_ms(topic, group, result, deliveries[group.name])
        for group in own
        if group.name in deliveries
    }
    line = time_line(events, deliveries, steps, visit.now_ms)
    return _trace_model(visit, events, deliveries, line) | {
        # another group may have got no further: then only the lines of the groups say how far they are
        "status": word if is_whole or result.draft.cancelled else None,
        "due_ms": None,
        "kind": "Message",
        "groups_left": [group.name for group in groups[len(looked_at) :] if may_see(group.name)],
    }


def _trace_model(visit: Visit, events: Any, statuses: Any, line: Any) -> dict[str, Any]:
    names: dict[str, str | None] = {}
    for event in events:
        if event.by and event.by not in names and visit.has_units(1):
            names[event.by] = visit.deps.tokens.name(event.by)
    return {"events": events, "deliveries": statuses, "line": line, "names": names, "groups_left": []}


def message_fate(visit: Visit) -> Shown:
    """The message's place for each group, as far as the page's read units reach."""
    deps = visit.deps
    topic = visit.topic()
    id = visit.params["id"]
    message = _find_with_dead_letters(visit, topic, id)
    fate_by_group, group_names_not_owed, names_left = {}, [], []
    if isinstance(message, Message):
        for group in _own_first(visit, deps.catalog.groups(topic)):
            if not visit.has_units(_ENOUGH):
                names_left.append(group.name)
            elif fate := deps.fates.of_group(topic, group, message, _MOST_ROWS):
                fate_by_group[group.name] = fate
            else:
                group_names_not_owed.append(group.name)
    fates = Fates(fate_by_group, tuple(group_names_not_owed))
    model = {
        "id": id,
        "fates": fates.of_groups(visit.caller.may_use_group),
        "is_in_log": isinstance(message, Message),
        "adds_up": fates.adds_up,
        "is_complete": not names_left and fates.is_complete,
        "groups_left": sum(map(visit.caller.may_use_group, names_left)),
    }
    return Page("fate.html", model)


def place(visit: Visit) -> Shown:
    """The message at a place in the log: attempts know no more of it."""
    topic = visit.topic()
    shard, offset = (whole_number(visit.params[name], 15) for name in ("shard", "offset"))
    if shard is not None and offset is not None and shard in topic.shard_numbers:
        rows = visit.deps.adapters.log.read_back(topic.shard_key(shard), offset, 1)
        for row in rows:
            if row.first <= offset < row.end and (message := row.message(shard, offset)):
                return SeeOther(visit.links.to("topics", topic.name, "messages", message.id))
    raise NotFound("MESSAGE_NOT_FOUND", "There is no message at this place: it has expired, perhaps.")


class Mark(NamedTuple):
    """A piece of a lane, in thousandths of its width."""

    kind: str
    x: float
    width: float
    event: Event | None = None
    at_ms: int = 0


class Lane(NamedTuple):
    """A group's lane; the message's own where there is no group."""

    group: str | None
    marks: Sequence[Mark]


class TimeLine(NamedTuple):
    """The lanes, and the times at the ends of the scale."""

    lanes: Sequence[Lane]
    start_ms: int
    past_ms: int
    end_ms: int | None
    coming: Mapping[str, Sequence[int]]


class _Scale(NamedTuple):
    start_ms: int
    past_ms: int
    end_ms: int | None

    def x(self, at_ms: int) -> float:
        past_width = _PAST if self.end_ms else WIDTH - _NARROWEST
        if at_ms <= self.past_ms or self.end_ms is None:
            part = (at_ms - self.start_ms) / max(1, self.past_ms - self.start_ms)
            return round(min(max(part, 0), 1) * past_width, 1)
        part = (at_ms - self.past_ms) / max(1, self.end_ms - self.past_ms)
        return round(_PAST + min(part, 1) * (WIDTH - _PAST - _NARROWEST), 1)


def body_as(draft: Draft, form: str) -> str:
    """The body as pretty JSON, as it is, or in hex; its beginning, where it is long."""
    if form == "hex":
        return _hex(draft.body[:_HEX_BYTES])
    if form == "pretty" and len(draft.body) <= _MOST_BYTES and holds_json(draft):
        return msgspec.json.format(draft.body, indent=2).decode()
    return draft.body[:_MOST_BYTES].decode(errors="replace")


def is_cut(draft: Draft, form: str) -> bool:
    """Is only the beginning shown?"""
    return len(draft.body) > (_HEX_BYTES if form == "hex" else _MOST_BYTES)


def editable_body(draft: Draft) -> str | None:
    """The whole body for a form that saves what stands in it, pretty if it is JSON; empty where it is gone or no text.
    None: it is too long for a page."""
    if not draft.has_body:
        return ""
    if is_cut(draft, "raw"):
        return None
    try:
        draft.body.decode()
    except UnicodeDecodeError:
        return ""
    return body_as(draft, "pretty")


def _hex(body: bytes) -> str:
    rows = [body[at : at + 16] for at in range(0, len(body), 16)]
    return "\n".join(
        f"{n * 16:08x}  {row.hex(' '):<47}  {''.join(chr(b) if 32 <= b < 127 else '.' for b in row)}"
        for n, row in enumerate(rows)
    )


def next_attempts_ms(topic: Topic, group: Group, message: Message, status: DeliveryStatus) -> list[int]:
    """When the next attempts are, should each of them fail: the steps of the ladder that are left."""
    if status.status != "RETRYING" or not status.next_attempt_ms:
        return []
    moments = [status.next_attempt_ms]
    next_attempt = max_attempts(topic, group, message.draft) - status.retries_left + 1  # since a redrive
    for attempt in range(next_attempt, next_attempt + min(status.retries_left, _MOST_COMING) - 1):
        moments.append(moments[-1] + wait_ms(topic, group, message.id, message.draft, attempt))
    return moments


def time_line(
    events: Sequence[Event],
    statuses: Mapping[str, DeliveryStatus],
    steps: Mapping[str, Sequence[int]],
    now_ms: int,
) -> TimeLine:
    """The time line of a message. `steps` are the moments of attempts to come, by group."""
    start_ms = min((event.at_ms for event in events), default=now_ms)
    last_ms = max((event.at_ms + (event.duration_ms or 0) for event in events), default=now_ms)
    under_way = not statuses or any(status.status not in OVER for status in statuses.values())
    past_ms = max(now_ms, start_ms + 1) if under_way else max(last_ms, start_ms + 1)
    later = [moment for moments in steps.values() for moment in moments]
    later += [event.deadline_ms for event in events if event.event == "leased" and event.deadline_ms]
    end_ms = max((moment for moment in later if moment > past_ms), default=None)
    scale = _Scale(start_ms, past_ms, end_ms)
    groups = dict.fromkeys([*statuses, *(event.group for event in events if event.group)])
    lanes = [Lane(None, [_point(event, scale) for event in events if event.group is None])]
    for group in groups:
        own = [event for event in events if event.group == group]
        lanes.append(Lane(group, _marks(own, steps.get(group, ()), scale)))
    return TimeLine(lanes=lanes, start_ms=start_ms, past_ms=past_ms, end_ms=end_ms, coming=steps)


def _marks(events: Sequence[Event], steps: Sequence[int], scale: _Scale) -> list[Mark]:
    """Attempts, the waits between them, the lease that runs, and what is to come."""
    attempts = [event for event in events if event.event == "delivered"]
    ends = [event.at_ms + (event.duration_ms or 0) for event in attempts]
    begins = [*(event.at_ms for event in attempts[1:]), *steps[:1]]
    marks = [_piece("wait", end, begin, scale) for end, begin in zip(ends, begins, strict=False)]
    for event in events:
        if event.event == "delivered":
            kind = "ok" if event.outcome == "SUCCESS" else "fail"
            end_ms = event.at_ms + (event.duration_ms or 0)
            marks.append(_piece(kind, event.at_ms, end_ms, scale, event))
        elif event.event == "leased":
            marks.append(_piece("lease", event.at_ms, event.deadline_ms or 0, scale, event))
        else:
            marks.append(_point(event, scale))
    return marks + [_piece("coming", step, step, scale) for step in steps]


def _piece(kind: str, start_ms: int, end_ms: int, scale: _Scale, event: Event | None = None) -> Mark:
    x = scale.x(start_ms)
    return Mark(kind, x, round(max(_NARROWEST, scale.x(end_ms) - x), 1), event, start_ms)


def _point(event: Event, scale: _Scale) -> Mark:
    return Mark("event", scale.x(event.at_ms), _NARROWEST, event, event.at_ms)
