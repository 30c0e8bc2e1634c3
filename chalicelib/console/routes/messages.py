"""Messages: lists with filters in the URL, and one with its time line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..http import Page, Shown, Visit, page

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...domain.message import Draft
    from ...domain.topic import Group, Topic
    from ...services.inspect.lookup import AnyMessage

_STATUSES = ("NEW", "RUNNING", "RETRYING", "DEAD", "SUCCESS", "CANCELLED")
_FOR_THE_TRACE = 10  # read units that are left for what the page shows of the message that it looks for
_ROLES = {"consume", "admin"}
_MOST_BYTES = 4_000_000  # Lambda answers with 6 MB at most
_ZONE = r"(?:Z|[+-]\d\d:\d\d)\Z"


@page("GET", "/console/topics/{topic}/messages")
def messages(visit: Visit) -> Shown:
    """Messages, newest first, narrowed by what the URL says."""
    from .. import message_list
    from ..views import messages as view

    check_may_read(visit)
    topic = visit.topic()
    selection = message_list.selection(visit, topic, _STATUSES)
    survey = selection.survey
    listed_messages, older = message_list.read(visit, selection)
    model = {
        "topic": topic,
        "survey": survey,
        "lines": view.lines(listed_messages, survey),
        "older": older,
        "statuses": _STATUSES,
        "shown_groups": [each.group.name for each in survey.groups[: view.MOST_GROUPS]],
    }
    return Page("messages.html", model)


def check_may_read(visit: Visit) -> None:
    """Bodies are for those who may consume."""
    from ...domain.errors import Forbidden

    if not visit.caller.scopes & _ROLES:
        raise Forbidden("SCOPE_MISSING", "Seeing messages needs a token with the scope 'consume' or 'admin'.")


def find_with_dead_letters(visit: Visit, topic: Topic, id: str) -> AnyMessage:
    """The message, or what a dead letter has of it, as far as the page's read units reach."""
    return visit.deps.lookup.find_with_dead_letters(
        topic, id, visit.caller.may_use_group, lambda: visit.has_read_units(_FOR_THE_TRACE)
    )


def own_first(visit: Visit, groups: Iterable[Group]) -> list[Group]:
    """The groups, those that the visitor may see before the others: these count for what is told of the message, as far
    as the page's read units reach."""
    return sorted(groups, key=lambda group: not visit.caller.may_use_group(group.name))


def whole_time(text: str) -> str:
    """A time as a form's field gives it, in UTC, as RFC 3339."""
    text = text.strip()
    if len(text) == 16:
        text += ":00"
    return text if re.search(_ZONE, text) else f"{text}Z"


@page("GET", "/console/topics/{topic}/messages/{id}")
def message(visit: Visit) -> Shown:
    """A message: body, facts, and its time line."""
    from ...domain.message import Message
    from ...services.core.bodies import with_body
    from ..views import message as view

    check_may_read(visit)
    deps = visit.deps
    topic = visit.topic()
    id = visit.params["id"]
    result = find_with_dead_letters(visit, topic, id)
    stored_message = result if isinstance(result, Message) else result.message
    whole = with_body(deps.adapters.blobs, stored_message)
    form = visit.query.get("as", "pretty")
    form = form if form in view.FORMS else "pretty"
    model: dict[str, Any] = {
        "topic": topic,
        "message": whole,
        "form": form,
        "body": view.body_as(whole.draft, form),
        "is_cut": view.is_cut(whole.draft, form),
        "editable": view.editable_body(whole.draft),
        "id": id,
        **_status_and_path(visit, topic, result),
    }
    return Page("message.html", model)


def _status_and_path(visit: Visit, topic: Topic, result: Any) -> dict[str, Any]:
    """The status of a message, and its path to there."""
    from ...domain.message import Message, overall
    from ...domain.transaction import Transaction
    from ...services.inspect.lookup import status_before_log
    from ..views import message as view

    deps = visit.deps
    if not isinstance(result, Message):
        events = deps.tracer.path_before_log(result)
        due_ms = None if isinstance(result, Transaction) else result.timer.due_ms
        line = view.time_line(events, {}, {"": [due_ms]} if due_ms else {}, visit.now_ms)
        return _trace_model(visit, events, {}, line) | {
            "status": status_before_log(result),
            "due_ms": due_ms,
            "kind": type(result).__name__,
        }
    topic_statuses = deps.statuses.of_topic(topic)
    only = visit.query.get("group") or None
    groups = own_first(visit, (group for group in topic_statuses.groups() if only in (None, group.name)))
    statuses = {}
    looked_at: list[Group] = []
    for group in groups:
        if looked_at and not visit.has_read_units(8):
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
        group.name: view.next_attempts_ms(topic, group, result, deliveries[group.name])
        for group in own
        if group.name in deliveries
    }
    line = view.time_line(events, deliveries, steps, visit.now_ms)
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
        if event.by and event.by not in names and visit.has_read_units(1):
            names[event.by] = visit.deps.tokens.name(event.by)
    return {"events": events, "deliveries": statuses, "line": line, "names": names, "groups_left": []}


@page("GET", "/console/topics/{topic}/messages.jsonl")
def message_lines(visit: Visit) -> Shown:
    """The messages of a list as JSON lines, each with its body as long as all bodies together have 4 MB."""
    import msgspec

    from ...services.core.bodies import with_body
    from ..http import File

    result = messages(visit)
    assert isinstance(result, Page)
    rows, room = [], _MOST_BYTES
    for line in result.model["lines"]:
        draft = line.draft
        if draft.size <= room:
            draft = with_body(visit.deps.adapters.blobs, line.message).draft
            room -= draft.size
        rows.append(
            {
                "id": line.message.id,
                "shard": line.message.shard,
                "offset": line.message.offset,
                "keys": list(draft.keys),
                "tag": draft.tag,
                "statuses": dict(line.statuses),
                "size": draft.size,
                **body_fields(draft),
            }
        )
    lines = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
    return File(
        lines,
        "application/x-ndjson",
        {"Content-Disposition": f'attachment; filename="{visit.params["topic"]}.jsonl"'},
    )


def body_fields(draft: Draft) -> dict[str, Any]:
    """The body; nothing where it is not here, which is not the same as an empty one."""
    import base64

    import msgspec

    from ...domain.message import holds_json

    if not draft.has_body:
        return {}
    if holds_json(draft):
        return {"body": msgspec.Raw(draft.body)}
    return {"body_base64": base64.b64encode(draft.body).decode()}
