"""Jobs, by their producers' names for them; and delayed messages, many at once: reschedule or cancel them."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, NotRequired, TypedDict
from urllib.parse import unquote

from msgspec import UNSET, Meta, Struct, UnsetType

from ...domain import limits as lim
from ...domain.errors import HeadraceError, Refused
from ...domain.message import Message
from ...domain.topic import Topic
from ...services.produce.drafts import takes_all
from .. import lists, parse
from ..calls import BY_PRODUCERS, PAGED, READ, TOPIC, Context, Response, call
from ..fields import TEXT, Time, at, either
from ..http import check_job, invalid
from ..problems import Problem, problem
from .messages import MessageView, cancel, message_view
from .produce import Produced, produced_view

if TYPE_CHECKING:
    from ...services.produce.delayed import DelayedMessage


_Postponement = Annotated[int, Meta(ge=-lim.MAX_DELAY_SECONDS, le=lim.MAX_DELAY_SECONDS)]


class DelayedBody(Struct, forbid_unknown_fields=True):
    """A change of delayed messages, one of three: a new time for all (`deliver_at`; a past time means now), a later
    time for each (`postpone_seconds`; less than 0: sooner), or `cancel`. It applies to the messages with these ids, or
    to a page of those that match the query. `dry_run`: only show the changes."""

    deliver_at: Time | UnsetType = UNSET
    postpone_seconds: _Postponement | UnsetType = UNSET
    cancel: bool = False
    ids: Annotated[list[str], Meta(min_length=1, max_length=lim.MAX_PAGE)] | UnsetType = UNSET
    dry_run: bool = False


class RescheduledMessage(TypedDict):
    """The result for one delayed message: its new time (null: it was cancelled); if `changed` is false, it was the same
    before. Or the error."""

    id: str
    changed: NotRequired[bool]
    deliver_at: NotRequired[Time | None]
    error: NotRequired[Problem]


Rescheduled = Annotated[RescheduledMessage, either(["changed", "deliver_at"], ["error"])]
_FILTERS = ("key", "tag", "tenant", "shard", "from", "to")
_JOB = f"{TOPIC}/jobs/{{job}}"
_JOBS, _MESSAGES = f"{TOPIC}/jobs", f"{TOPIC}/messages"


class ProducedJob(Produced):
    """Where a job was stored, under its name."""

    job: str


@call("PUT", _JOB, **BY_PRODUCERS, body=parse.MessageBody, headers=(parse.APP,), statuses=(200, 201))
def put_job(context: Context) -> Response[ProducedJob]:
    """Store a message under a name of yours (201), or replace the one that waits under it: content and time (200).

    The name is free again when every group has ended the message, or it was cancelled. Until then, from a group's claim
    on, the answer is 409 ALREADY_CLAIMED."""
    name, body = _name(context), context.body
    if body.dedup_id is not None:
        raise invalid("dedup_id", "is for messages without a name: a job has its name instead")
    draft = parse.draft(context, body, context.raw)
    topic = context.topic_for(takes_all([draft]))
    by = parse.producer(context)
    result, is_new = context.deps.named_jobs.put(topic, name, draft, by, context.may_use_group)
    return Response({**produced_view(topic.name, result), "job": name}, 201 if is_new else 200)


@call("GET", _JOB, scopes=READ)
def get_job(context: Context) -> Response[MessageView]:
    """The last message that was stored under a name, as long as it is kept; with its status per group."""
    topic = context.topic()
    return Response(message_view(context, topic, context.deps.named_jobs.find(topic, _name(context))))


@call("DELETE", _JOB, **BY_PRODUCERS, statuses=(204,))
def delete_job(context: Context) -> Response[None]:
    """Cancel the job of a name, if no group has claimed it; the name is free then."""
    topic = context.topic()
    cancel(context, topic, context.deps.named_jobs.open(topic, _name(context)))
    return Response(None, 204)


@call("GET", _JOBS, scopes=READ, query=("prefix", *PAGED))
def list_jobs(context: Context) -> Response[lists.Page[MessageView]]:
    """List the jobs that wait for their time and whose names have this beginning, soonest first.

    A page may be short or empty while `next_page_token` says there is more."""
    from ...services.inspect.waiting import reader, soonest_first

    topic, query, caller = context.topic(), context.query, context.caller
    filters = replace(lists.of_query({}), job_prefix=query.get("prefix", ""))
    purpose = lists.purpose("jobs", [topic.name], query, ["prefix"])
    limit, start = lists.limit(query), lists.page_start(context, purpose)
    rows, position = soonest_first(reader(context.deps.adapters.timers), topic, filters, None, limit, start)
    own = [row for row in rows if caller is None or caller.may_use_job(row.message.draft.job)]
    return lists.page(context, purpose, [message_view(context, topic, row) for row in own], position)


def _name(context: Context) -> str:
    """The job's name in the path. Raises Malformed."""
    name = unquote(context.params["job"])
    is_text = re.match(TEXT, name) and "\ufffd" not in name  # which is what no UTF-8 is decoded to
    is_folder = name in (".", "..")  # to programs
    if not is_text or is_folder or len(name.encode()) > lim.MAX_JOB_BYTES:
        issue = f"must be 1 to {lim.MAX_JOB_BYTES} bytes of text in UTF-8, URL-encoded, without control characters"
        raise invalid("job", f"{issue}, and not `.` or `..`")
    return name


@call("PATCH", _MESSAGES, **BY_PRODUCERS, body=DelayedBody, query=(*_FILTERS, *PAGED))
def change_delayed(context: Context) -> Response[lists.Page[Rescheduled]]:
    """Deliver sooner, postpone or cancel many delayed messages.

    It changes the messages with the ids; or, page by page and soonest first, those that match the query (`from` and
    `to` are due times). With `dry_run` it only shows the changes."""
    (topic, _), body = lists.topic_and_shard(context), context.body
    if (body.deliver_at is not UNSET) + (body.postpone_seconds is not UNSET) + body.cancel != 1:
        raise invalid("", "give one of deliver_at, postpone_seconds and cancel")
    if body.deliver_at is not UNSET:
        parse.time_ms(body.deliver_at, "deliver_at")
    if body.ids is not UNSET:
        if context.query:
            raise Refused("CHOICE_AMBIGUOUS", "Give either ids or a query, or neither for a page of all.")
        return Response({"items": [_change_by_id(context, topic, id) for id in dict.fromkeys(body.ids)]})
    purpose = lists.purpose("delayed", [topic.name], context.query, _FILTERS)
    rows, next_start, began_ms = _page(context, topic, purpose)
    items = [_changed(context, topic, row, began_ms) for row in rows]
    return lists.page(context, purpose, items, next_start)


def _page(
    context: Context, topic: Topic, purpose: str
) -> "tuple[Sequence[DelayedMessage], list[str | int] | None, int]":
    """A page of delayed messages, without those that an earlier page has postponed; where the next begins; and when the
    first was read."""
    from ...services.inspect.waiting import reader, soonest_first

    filters, key = lists.of_query(context.query), lists.key(context.query)
    start = lists.page_start(context, purpose)
    after, began_ms = start or (None, context.now_ms)
    read = reader(context.deps.adapters.timers)
    rows, position = soonest_first(read, topic, filters, key, lists.limit(context.query), after)
    rows_to_show = [row for row in rows if start is None or not _postponed_since(row, began_ms)]
    return rows_to_show, [position, began_ms] if position else None, began_ms


def _postponed_since(row: "DelayedMessage", began_ms: int) -> bool:
    return any(act.what == "POSTPONED" and act.at_ms >= began_ms for act in row.message.draft.acts)


def _change_by_id(context: Context, topic: Topic, id: str) -> RescheduledMessage:
    from ...services.produce.delayed import DelayedMessage

    try:
        message = context.deps.lookup.find(topic, id)
    except HeadraceError as error:
        return {"id": id, "error": problem(error, context.request_id)}
    if isinstance(message, DelayedMessage):
        return _changed(context, topic, message)
    reason = "It waits for the decision of its transaction, not for a time: commit it or roll it back."
    if isinstance(message, Message):
        reason = "It waits for no time any more."
    return {"id": id, "error": problem(Refused("NOT_DELAYED", reason), context.request_id)}


def _changed(context: Context, topic: Topic, row: "DelayedMessage", began_ms: int = 0) -> RescheduledMessage:
    """What became of one; or would, where nothing is to be done yet. `began_ms`: when the first page was read, maybe
    by a clock that is ahead of ours."""
    body, id = context.body, row.timer.id
    try:
        due_ms = None if body.cancel else _due_ms(context, row)
        is_change = not row.cancelled if due_ms is None else due_ms != row.timer.due_ms
        check_job(context.caller, row.message.draft.job)
        if is_change and not body.dry_run:
            if due_ms is None:
                cancel(context, topic, row)
            else:
                context.deps.delayed.amend(topic, row, {"due_ms": due_ms}, context.by, began_ms)
    except HeadraceError as error:
        return {"id": id, "error": problem(error, context.request_id)}
    return {"id": id, "changed": is_change, "deliver_at": None if due_ms is None else at(due_ms)}


def _due_ms(context: Context, row: "DelayedMessage") -> int:
    now_ms, body = context.now_ms, context.body
    if body.postpone_seconds is UNSET:
        return parse.due(body.deliver_at, now_ms)
    due_ms = max(now_ms, row.timer.due_ms + int(body.postpone_seconds) * 1000)
    parse.check_delay(due_ms - now_ms)
    return due_ms
