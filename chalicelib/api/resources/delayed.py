"""Delayed messages, many at once: reschedule or cancel them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NotRequired, TypedDict

from msgspec import UNSET, Meta, Struct, UnsetType

from ...domain import limits as lim
from ...domain.errors import HeadraceError, Refused
from ...domain.message import Message
from ...domain.topic import Scope, Topic
from .. import lists, parse
from ..calls import Context, Reach, Response, call
from ..fields import Time, at, either
from ..http import invalid
from ..lists import Page, page
from ..problems import Problem, problem
from .messages import cancel

if TYPE_CHECKING:
    from ...services.produce.delayed import DelayedMessage


class DelayedBody(Struct, forbid_unknown_fields=True):
    """A change of delayed messages, one of three: a new time for all (`deliver_at`; a past time means now), a later
    time for each (`postpone_seconds`; less than 0: sooner), or `cancel`. It applies to the messages with these ids, or
    to a page of those that match the query. `dry_run`: only show the changes."""

    deliver_at: Time | UnsetType = UNSET
    postpone_seconds: (
        Annotated[int, Meta(ge=-lim.MAX_DELAY_SECONDS, le=lim.MAX_DELAY_SECONDS)] | UnsetType
    ) = UNSET
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
_FILTERS = ("key", "tag", "shard", "from", "to")


@call(
    "PATCH",
    "/v1/topics/{topic}/messages",
    scopes=(Scope.PRODUCE, Scope.ADMIN),
    body=DelayedBody,
    query=(*_FILTERS, "limit", "page_token"),
    reach=Reach.GROUPS,
)
def change_delayed(context: Context) -> Response[Page[Rescheduled]]:
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
    items = [_change_row(context, topic, row, began_ms) for row in rows]
    return Response(page(context, purpose, items, next_start))


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
        return _change_row(context, topic, message)
    reason = (
        "It waits for no time any more."
        if isinstance(message, Message)
        else "It waits for the decision of its transaction, not for a time: commit it or roll it back."
    )
    return {"id": id, "error": problem(Refused("NOT_DELAYED", reason), context.request_id)}


def _change_row(
    context: Context, topic: Topic, row: "DelayedMessage", began_ms: int = 0
) -> RescheduledMessage:
    """What became of one; or would, where nothing is to be done yet. `began_ms`: when the first page was read, maybe
    by a clock that is ahead of ours."""
    body, id = context.body, row.timer.id
    try:
        due_ms = None if body.cancel else _due_ms(context, row)
        is_change = not row.cancelled if due_ms is None else due_ms != row.timer.due_ms
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
