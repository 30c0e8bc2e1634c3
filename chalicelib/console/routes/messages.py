"""Messages: lists with filters in the URL, and one with its time line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..http import Page, Shown, Visit, page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...domain.message import Message
    from ...domain.topic import Group, Topic
    from ...services.inspect.lookup import AnyMessage
    from ...services.inspect.survey import GroupSurvey, TopicSurvey

_LINES = 20
_STATUSES = ("NEW", "RUNNING", "RETRYING", "DEAD", "SUCCESS", "CANCELLED")
_SOME = ("RUNNING", "RETRYING", "DEAD")  # of these a survey knows shard and offset
_RESERVE = 10  # units, for what the page shows of the message that it looks for
_ROLES = {"consume", "admin"}


@page("GET", "/console/topics/{topic}/messages")
def messages(visit: Visit) -> Shown:
    """Messages, newest first, narrowed by what the URL says."""
    from ..views import messages as view

    check_may_read(visit)
    topic = visit.topic()
    query = visit.query
    shard = _number(query.get("shard"), topic.shards)
    survey = visit.deps.surveyor.look(
        topic, first_shard=shard or 0, may_go_on=lambda: visit.has_units(10), ages=False
    )
    survey = survey.seen_by(visit.caller)
    group = next((each for each in survey.groups if each.group.name == query.get("group")), None)
    entries, next_start = _listed(visit, topic, survey, group, shard)
    model = {
        "topic": topic,
        "survey": survey,
        "lines": view.lines(entries, survey),
        "following": next_start,
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
        topic, id, visit.caller.may_use_group, lambda: visit.has_units(_RESERVE)
    )


def _number(text: str | None, below: int) -> int | None:
    if not text or not text.isascii() or not text.isdigit() or len(text) > 5:
        return None
    return min(int(text), below - 1)


def _listed(
    visit: Visit, topic: Topic, survey: TopicSurvey, group: GroupSurvey | None, shard: int | None
) -> tuple[Sequence[Message], str | None]:
    """A page of messages, and what the next page begins with."""
    query, status = visit.query, visit.query.get("status", "")
    if key := query.get("key"):
        return of_key(visit, topic, key)
    if group and status in _SOME:
        locations = [(s, offset) for s, offset in group.locations_of(status) if shard in (None, s)]
        return _at(visit, topic, locations[:_LINES]), None
    return _newest(visit, topic, survey, group, shard)


def of_key(visit: Visit, topic: Topic, key: str) -> tuple[Sequence[Message], str | None]:
    from ...domain.message import Message as InLog
    from ...services.inspect.filters import Filters

    results, _ = visit.deps.key_lookup.newest_first(topic, key[:256], Filters(), 8, None)
    return [each if isinstance(each, InLog) else each.message for each in results], None


def _at(visit: Visit, topic: Topic, locations: Sequence[tuple[int, int]]) -> list[Message]:
    """The messages at these shards and offsets, as far as they are kept."""
    reader, messages = visit.deps.reader, []
    for shard, offset in locations:
        if not visit.has_units(1):
            break
        slot = reader.fetch(topic.shard_key(shard), [offset], reader.recent())[offset]
        if slot.message:
            messages.append(slot.message)
    return messages


def _newest(
    visit: Visit, topic: Topic, survey: TopicSurvey, group: GroupSurvey | None, shard: int | None
) -> tuple[Sequence[Message], str | None]:
    """Messages from the tails back. Those of a status are found by looking at each."""
    from ...api import parse
    from ...services.inspect.filters import Filters
    from ..views import messages as view

    query = visit.query
    times = {name: parse.time_ms(whole_time(query[name]), name) for name in ("from", "to") if query.get(name)}
    filters = Filters(
        tag=query.get("tag") or None, shard=shard, from_ms=times.get("from"), to_ms=times.get("to")
    )
    purpose = f"console-messages:{topic.uid}"
    starts = _starts(visit, purpose) or {
        each.shard: each.tail for each in survey.shards if shard in (None, each.shard)
    }
    entries: list[Message] = []
    next_offsets: dict[int, int] | None = starts
    while next_offsets and len(entries) < _LINES and visit.has_units(2):
        rows, next_offsets = visit.deps.lookup.newest_first(
            topic, filters, _LINES - len(entries), next_offsets, may_go_on=lambda: visit.has_units(2)
        )
        entries += [
            each
            for each in rows
            if _passes(query.get("status", ""), each, group, view.statuses(each, survey))
            and (not query.get("text") or view.holds_text(each.draft, query["text"]))
        ]
        if not rows:
            break
    next_start = visit.deps.signing_keys.sign(purpose, json.dumps(next_offsets)) if next_offsets else None
    return entries, next_start


def _passes(status: str, message: Message, group: GroupSurvey | None, statuses: dict[str, str]) -> bool:
    if group and group.group.name not in statuses:
        return False
    if not status:
        return True
    if status == "CANCELLED":
        return message.draft.cancelled
    shown_statuses = [statuses[group.group.name]] if group else list(statuses.values())
    return status in shown_statuses


def whole_time(text: str) -> str:
    """A time as a form's field gives it, in UTC, as RFC 3339."""
    text = text.strip()
    if len(text) == 16:
        text += ":00"
    return text if text.endswith("Z") or "+" in text else f"{text}Z"


def _starts(visit: Visit, purpose: str) -> dict[int, int] | None:
    content = visit.deps.signing_keys.verified(purpose, visit.query.get("page", ""))
    starts: dict[str, Any] = json.loads(content) if content else {}
    return {int(shard): start for shard, start in starts.items()} or None


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
        **_standing(visit, topic, result),
    }
    return Page("message.html", model)


def _standing(visit: Visit, topic: Topic, result: Any) -> dict[str, Any]:
    """Where a message stands, and how it came there."""
    from ...domain.message import Message, overall
    from ...domain.transaction import Transaction
    from ...services.inspect.lookup import status_before_log
    from ..views import message as view

    deps = visit.deps
    if not isinstance(result, Message):
        events = deps.tracer.path_before_log(result)
        due_ms = None if isinstance(result, Transaction) else result.timer.due_ms
        line = view.time_line(events, {}, {"": [due_ms]} if due_ms else {}, visit.now_ms)
        return _told(visit, events, {}, line) | {
            "status": status_before_log(result),
            "due_ms": due_ms,
            "kind": type(result).__name__,
        }
    topic_statuses = deps.statuses.of_topic(topic)
    only = visit.query.get("group") or None
    groups = [
        group
        for group in topic_statuses.groups()
        if only in (None, group.name) and visit.caller.may_use_group(group.name)
    ]
    statuses = {}
    looked_at: list[Group] = []
    for group in groups:
        if looked_at and not visit.has_units(8):
            break
        looked_at.append(group)
        if status := topic_statuses.delivery(group, result):
            statuses[group.name] = status
    events = deps.tracer.path(topic, result, looked_at, topic_statuses.snapshot)
    steps = {
        group.name: view.coming(topic, group, result, statuses[group.name])
        for group in looked_at
        if group.name in statuses
    }
    line = view.time_line(events, statuses, steps, visit.now_ms)
    word = overall(result.draft, [status.status for status in statuses.values()])
    groups_left = [group.name for group in groups[len(looked_at) :]]
    return _told(visit, events, statuses, line) | {
        "status": word,
        "due_ms": None,
        "kind": "Message",
        "groups_left": groups_left,
    }


def _told(visit: Visit, events: Any, statuses: Any, line: Any) -> dict[str, Any]:
    names: dict[str, str | None] = {}
    for event in events:
        if event.by and event.by not in names and visit.has_units(1):
            names[event.by] = visit.deps.tokens.name(event.by)
    return {"events": events, "deliveries": statuses, "line": line, "names": names, "groups_left": []}


@page("GET", "/console/topics/{topic}/messages.jsonl")
def message_lines(visit: Visit) -> Shown:
    """The messages of a list as JSON lines."""
    import base64

    import msgspec

    from ...domain.message import holds_json
    from ..http import File

    result = messages(visit)
    assert isinstance(result, Page)
    rows = []
    for line in result.model["lines"]:
        draft = line.draft
        body: Any = msgspec.Raw(draft.body) if draft.has_body and holds_json(draft) else None
        rows.append(
            {
                "id": line.message.id,
                "shard": line.message.shard,
                "offset": line.message.offset,
                "keys": list(draft.keys),
                "tag": draft.tag,
                "statuses": dict(line.statuses),
                **({"body": body} if body else {"body_base64": base64.b64encode(draft.body).decode()}),
            }
        )
    lines = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
    return File(
        lines,
        "application/x-ndjson",
        {"Content-Disposition": f'attachment; filename="{visit.params["topic"]}.jsonl"'},
    )
