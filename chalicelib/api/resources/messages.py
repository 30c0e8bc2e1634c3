"""Reading messages: one by id, lists with filters."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict, cast

from ...domain.errors import Conflict, NotFound
from ...domain.limits import MAX_DEDUP_ID_CHARS
from ...domain.message import Message, overall
from ...domain.status import OVER
from ...domain.timer import ANY
from ...domain.topic import Topic
from ...domain.transaction import Transaction, TransactionState
from ...services.core.bodies import shown_body
from .. import lists, settings
from ..calls import BY_PRODUCERS, MESSAGE, PAGED, READ, TOPIC, Context, Response, call
from ..fields import Count, MessageStatus, at
from ..http import check_group, check_job, check_name, invalid
from . import message_views as views
from .by_hand import AmendBody, changes, edit_delivery

if TYPE_CHECKING:
    from ...services.inspect.lookup import AnyMessage, Filters
    from ...services.inspect.statuses import DeliveryStatus, TopicStatuses
    from ...services.produce.delayed import DelayedMessage


class MessageSummary(views.StoredContent):
    """A message and its status over all groups. Before it enters the log it has no offset, and no shard unless one was
    given."""

    shard: Count | None
    offset: Count | None
    topic: str
    status: MessageStatus
    retries_left: int


class MessageView(MessageSummary):
    """Everything known about a message, with its delivery for each group."""

    deliveries: dict[str, views.DeliveryView]


class FateView(TypedDict):
    """A message's state in every group. `skipped`: groups that do not get it, for they began behind it or were moved
    there by a seek; `complete`: every group has finished with it; `adds_up`: each delivery is in one place."""

    message: MessageSummary
    groups: dict[str, views.GroupFate]
    skipped: list[str]
    complete: bool
    adds_up: bool


_DELAYED = "DELAYED"
_PREPARED = "PREPARED"
_STATUSES = ("NEW", "RUNNING", "SUCCESS", "RETRYING", "DEAD", "CANCELLED", _DELAYED, _PREPARED)
_FILTERS = ("group", "status", "key", "tag", "tenant", "shard", "from", "to")


@call("GET", MESSAGE, scopes=READ)
def get_message(context: Context) -> Response[MessageView]:
    """Everything known about a message, with its status per group."""
    topic = context.topic()
    return Response(message_view(context, topic, _find_with_dead_letters(context, topic)))


def _find_with_dead_letters(context: Context, topic: Topic) -> "AnyMessage":
    return context.deps.lookup.find_with_dead_letters(topic, context.params["id"], context.may_use_group)


def _find_to_change(context: Context, topic: Topic) -> "AnyMessage":
    """The message. Raises ALREADY_CLAIMED where only a dead letter is left of it."""
    lookup, id = context.deps.lookup, context.params["id"]
    try:
        return lookup.find(topic, id)
    except NotFound:
        if lookup.in_dead_letters(topic, id, context.may_use_group):
            words = (
                "The message was claimed, and only a dead letter is left of it: it can be changed no more."
            )
            raise Conflict("ALREADY_CLAIMED", words) from None
        raise


def message_view(
    context: Context, topic: Topic, message: "AnyMessage", topic_statuses: "TopicStatuses | None" = None
) -> MessageView:
    """A message as it stands, wherever that is; one of several, as they stood at the same moment."""
    whole = shown_body(context.deps.adapters.blobs, topic, message.message)
    whole = replace(whole, draft=context.shown_urls(whole.draft))
    if isinstance(message, Message):
        statuses = (topic_statuses or context.deps.statuses.of_topic(topic)).deliveries(message)
        return _logged_view(context, topic, whole, statuses)
    if isinstance(message, Transaction):
        is_cancelled = message.state is TransactionState.ROLLED_BACK
        return _before_log(topic, whole, message.shard, is_cancelled, _PREPARED)
    shard = message.timer.shard.shard
    view = _before_log(topic, whole, None if shard == ANY else shard, message.cancelled, _DELAYED)
    return {**view, "deliver_at": at(message.timer.due_ms)}


@call("PATCH", MESSAGE, **BY_PRODUCERS, body=AmendBody, query=("group", "consumer"), scopes_of_group=READ)
def amend_message(context: Context) -> Response[MessageView]:
    """Change the body, headers or retries of a message that no group has claimed; while it waits, its time too.

    With `group`: change a delivery that waits for its next attempt, for this group alone (in a broadcast, for a
    `consumer`)."""
    if "group" in context.query:
        return Response(message_view(context, *edit_delivery(context)))
    of_one = settings.given(context.body).keys() & {"next_attempt_at", "attempts_left"}
    if wrong := of_one | context.query.keys():
        raise invalid(min(wrong), "is for one group: name it in the query, as `group`")
    topic, by = context.topic(), context.by
    message = _find_to_change(context, topic)
    if isinstance(message, Transaction):
        raise _transaction_conflict(message)
    old = message.message.draft
    check_job(context.caller, old.job)
    draft_changes = changes(context.body, context.raw, context.now_ms, old.headers)
    topic = context.topic_for(lambda topic: len(draft_changes.get("body", b"")) <= topic.max_body_bytes)
    if not isinstance(message, Message):
        try:
            delayed = context.deps.delayed.amend(topic, message, draft_changes, by)
            return Response(message_view(context, topic, delayed))
        except Conflict as conflict:
            if "due_ms" in draft_changes:
                raise
            message = _find_in_log(context, topic, message.timer.id, conflict)
    new_message = context.deps.amender.amend(topic, message, draft_changes, by, context.may_use_group)
    return Response(message_view(context, topic, new_message))


@call("DELETE", MESSAGE, **BY_PRODUCERS, statuses=(204,))
def cancel_message(context: Context) -> Response[None]:
    """Cancel a message that no group has claimed."""
    topic = context.topic()
    message = _find_to_change(context, topic)
    if isinstance(message, Transaction):
        if message.state is not TransactionState.ROLLED_BACK:
            raise _transaction_conflict(message)
        return Response(None, 204)
    cancel(context, topic, message)
    return Response(None, 204)


def cancel(context: Context, topic: Topic, message: "DelayedMessage | Message") -> None:
    """Cancel a message that waits for its time, or stands in its log. Raises Conflict where it is too late, Forbidden
    if the token is for other jobs."""
    check_job(context.caller, message.message.draft.job)
    if not isinstance(message, Message):
        try:
            context.deps.delayed.cancel(topic, message, context.by)
            return
        except Conflict as conflict:
            message = _find_in_log(context, topic, message.timer.id, conflict)
    context.deps.amender.cancel(topic, message, context.by, context.may_use_group)


def _find_in_log(context: Context, topic: Topic, id: str, conflict: Conflict) -> Message:
    """A message that came due since it was read: in its log it can be changed until a group claims it. Raises
    the conflict if it is another."""
    if conflict.code != "ALREADY_DUE":
        raise conflict
    message = context.deps.lookup.find(topic, id)
    if not isinstance(message, Message):
        raise conflict
    return message


def _transaction_conflict(transaction: Transaction) -> Conflict:
    if transaction.state is TransactionState.ROLLED_BACK:
        return Conflict("MESSAGE_CANCELLED", "The message was rolled back; publish a new one.")
    return Conflict("IN_TRANSACTION", "The message is in a transaction: commit it or roll it back.")


@call("GET", f"{MESSAGE}/trace", scopes=READ)
def get_trace(context: Context) -> Response[views.TraceView]:
    """A message's trace, in order of time: changes with the token that made them, attempts with the consumer."""
    topic = context.topic()
    message, tracer = _find_with_dead_letters(context, topic), context.deps.tracer
    path = tracer.path(topic, message) if isinstance(message, Message) else tracer.path_before_log(message)
    names = {by: context.deps.tokens.name(by) for by in {e.by for e in path} if by}
    mine = [event for event in path if event.group is None or context.may_use_group(event.group)]
    return Response({"events": [views.event_view(event, names) for event in mine]})


@call("GET", f"{MESSAGE}/fate", scopes=READ)
def get_fate(context: Context) -> Response[FateView]:
    """A message's state in every group: its status, and the one place in which it is."""
    from ...services.inspect.fate import Fates

    topic = context.topic()
    message = _find_with_dead_letters(context, topic)
    view = message_view(context, topic, message)
    fates = context.deps.fates.of(topic, message) if isinstance(message, Message) else Fates()
    own = fates.of_groups(context.may_use_group)
    summary = {name: value for name, value in view.items() if name != "deliveries"}
    groups = {name: views.fate_view(fate) for name, fate in own.owed.items()}
    others = {"groups": groups, "skipped": list(own.skipped), "adds_up": fates.adds_up}
    complete = view["status"] == "CANCELLED" or fates.is_complete
    return Response(cast(FateView, {"message": summary, "complete": complete, **others}))


@call("GET", f"{TOPIC}/messages", scopes=READ, query=(*_FILTERS, "dedup_id", *PAGED))
def list_messages(context: Context) -> Response[lists.Page[MessageView]]:
    """List messages, newest first; with status DELAYED soonest first, with PREPARED in the order of preparation.

    A message that was delayed is sorted by the time when it was due, also for `from` and `to`.
    A page may be short or empty while `next_page_token` says there is more. `dedup_id`, without other filters, finds
    the one message that has it."""
    topic, query = context.topic(), context.query
    if "dedup_id" in query:
        return Response({"items": _with_dedup_id(context, topic)})
    topic, _ = lists.topic_and_shard(context)
    filters = _filters(context, topic)
    purpose = lists.purpose("messages", [topic.name], query, _FILTERS)
    start = lists.page_start(context, purpose)
    topic_statuses = context.deps.statuses.of_topic(topic)
    rows, next_start = _page(context, topic_statuses, filters, start)
    items = [message_view(context, topic, row, topic_statuses) for row in rows]
    return lists.page(context, purpose, items, next_start)


def _page(
    context: Context, topic_statuses: "TopicStatuses", filters: "Filters", start: Any
) -> "tuple[Sequence[AnyMessage], Any]":
    """A page of the list that the filters mean, from where the page token says, and where the next one starts."""
    from ...services.inspect import waiting

    limit, key = lists.limit(context.query), lists.key(context.query)
    topic, adapters = topic_statuses.topic, context.deps.adapters
    read = waiting.reader(adapters.timers)
    if filters.status == _DELAYED:
        return waiting.soonest_first(read, topic, filters, key, limit, start)
    if key is not None:
        return context.deps.key_lookup.newest_first(topic, key, filters, limit, start, topic_statuses)
    if filters.status == _PREPARED:
        return waiting.prepared_and_undecided(read, adapters.transactions, topic, filters, limit, start)
    starts = {int(shard): offset for shard, offset in start.items()} if start is not None else None
    return context.deps.lookup.newest_first(topic, filters, limit, starts, topic_statuses)


def _with_dedup_id(context: Context, topic: Topic) -> list[MessageView]:
    """The message that was stored under a dedup id, if there is one."""
    query = context.query
    if query.keys() - {"dedup_id", "limit"}:
        raise invalid("dedup_id", "stands for one message, so it goes without other filters")
    lists.limit(query)
    dedup_id = lists.bounded_text(query, "dedup_id", MAX_DEDUP_ID_CHARS)
    message = context.deps.lookup.find_by_dedup_id(topic, dedup_id) if dedup_id else None
    return [message_view(context, topic, message)] if message else []


def _filters(context: Context, topic: Topic) -> "Filters":
    """What the query limits the list to. Raises Malformed, Forbidden or NotFound."""

    query = context.query
    status = query.get("status")
    if status is not None and status not in _STATUSES:
        raise invalid("status", f"must be one of {', '.join(_STATUSES)}")
    if status in (_DELAYED, _PREPARED) and "group" in query:
        raise invalid("status", f"{status} goes without `group`: nobody is owed the message yet")
    group = None
    if "group" in query:
        check_name("group", query["group"])
        check_group(context.caller, query["group"])
        group = context.deps.catalog.group(topic, query["group"])
    return replace(lists.of_query(query), group=group, status=status)


def _logged_view(
    context: Context, topic: Topic, message: Message, statuses: "Mapping[str, DeliveryStatus]"
) -> MessageView:
    """A message in its log: its status over all groups, its deliveries for those that the caller may use."""
    of_all, may_see = [status.status for status in statuses.values()], context.may_use_group
    left = [status.retries_left for status in statuses.values() if status.status not in OVER]
    retries_left = max(left, default=0) if statuses else _retries(topic, message)
    deliveries = {name: views.delivery(each) for name, each in statuses.items() if may_see(name)}
    place = {"shard": message.shard, "offset": message.offset}
    return _view(topic, message, place, overall(message.draft, of_all), retries_left, deliveries)


def _before_log(topic: Topic, of: Message, shard: int | None, is_cancelled: bool, status: str) -> MessageView:
    status, retries = ("CANCELLED", 0) if is_cancelled else (status, _retries(topic, of))
    return _view(topic, of, {"shard": shard, "offset": None}, status, retries, {})


def _view(topic: Topic, of: Message, place: Any, status: str, retries: int, deliveries: Any) -> MessageView:
    own = {"topic": topic.name, "status": status, "retries_left": retries, "deliveries": deliveries}
    return cast(MessageView, {**views.content(of), **place, **own})


def _retries(topic: Topic, message: Message) -> int:
    """How many retries an untried message has, unless a group overrides it."""
    return (message.draft.max_attempts or topic.retry.max_attempts) - 1
