"""What operators do to deliveries: settle one, change one that waits for a retry, purge a group or a topic."""

from collections.abc import Collection
from typing import Annotated, Any, Literal, TypedDict

from msgspec import UNSET, Meta, Struct, UnsetType

from ...domain import limits as lim
from ...domain.errors import Malformed, NotFound, Refused
from ...domain.message import JSON, Message
from ...domain.status import Status
from ...domain.topic import Group, Topic
from ...modes import POLICIES
from ...services.core.catalog import broadcast_needs_consumer
from .. import parse, settings
from ..calls import ADMIN, GROUP, MESSAGE, READ, TOPIC, Context, Reach, Response, call
from ..fields import Count, HeaderName, HeaderValue, Name, Time
from ..http import check_group, check_name, invalid
from .message_views import Retried, retried_view


class AmendBody(Struct, forbid_unknown_fields=True):
    """Changes of a message that no group has claimed yet; or with `group` in the query, of a delivery that waits for
    its next attempt: its `body`, `headers`, `next_attempt_at` (a past time means now) and `attempts_left`."""

    body: Any | UnsetType = UNSET
    deliver_at: Time | UnsetType = UNSET
    headers: Annotated[dict[HeaderName, HeaderValue], Meta(max_length=lim.MAX_HEADERS)] | UnsetType = UNSET
    retry: settings.Retry | UnsetType = UNSET
    next_attempt_at: Time | UnsetType = UNSET
    attempts_left: Annotated[int, Meta(ge=1, le=lim.MAX_ATTEMPTS)] | UnsetType = UNSET


class SettleBody(Struct, forbid_unknown_fields=True):
    """How a delivery of a group ends: as "success", or "dead" (a dead letter). `consumer`: whose delivery, in a
    broadcast."""

    group: Name
    outcome: Literal["success", "dead"]
    reason: Annotated[str, Meta(max_length=lim.MAX_REASON_CHARS)] | UnsetType = UNSET
    consumer: Name | UnsetType = UNSET


class PurgeGroupBody(Struct, forbid_unknown_fields=True):
    """`confirm` repeats the group's name. `consumer`: whose deliveries, in a broadcast; without it those of all."""

    confirm: str
    consumer: Name | UnsetType = UNSET


class PurgeTopicBody(Struct, forbid_unknown_fields=True):
    """`confirm` repeats the topic's name."""

    confirm: str


class Purged(TypedDict):
    """How many deliveries were dropped; of a topic, with its delayed messages."""

    purged: Count


_OUTCOMES = {"success": Status.SUCCESS, "dead": Status.DEAD}


@call("POST", f"{MESSAGE}/settle", scopes=READ, body=SettleBody)
def settle_message(context: Context) -> Response[Retried]:
    """End a delivery that is NEW, RETRYING or RUNNING, as success or as a dead letter; a lease of it becomes stale."""
    fields, deps = settings.given(context.body), context.deps
    topic, group, message = _delivery(context, fields["group"])
    uid = _consumer_uid(context, topic, group, fields.get("consumer"))
    outcome, reason = _OUTCOMES[fields["outcome"]], fields.get("reason")
    deps.deliveries.settle(topic, group, message, outcome, reason, context.by, uid)
    status = deps.statuses.of_topic(topic).delivery(group, message)
    return Response(retried_view(message.id, group.name, status))


def edit_delivery(context: Context) -> tuple[Topic, Message]:
    """Carry out a PATCH of a message for one group. Returns the message as it is for all."""
    body, query = context.body, context.query
    check_name("group", query["group"])
    topic, group, message = _delivery(context, query["group"])
    uid = _consumer_uid(context, topic, group, query.get("consumer"))
    if wrong := settings.given(body).keys() & {"deliver_at", "retry"}:
        raise invalid(min(wrong), "is for all groups: leave `group` out")
    now_ms = context.now_ms
    due_ms = None if body.next_attempt_at is UNSET else parse.next_attempt(body.next_attempt_at, now_ms)
    attempts_left = None if body.attempts_left is UNSET else body.attempts_left
    draft_fields = changes(body, context.raw, now_ms, message.draft.headers)
    topic = context.topic_for(lambda topic: len(draft_fields.get("body", b"")) <= topic.max_body_bytes)
    context.deps.deliveries.edit(topic, group, message, draft_fields, due_ms, attempts_left, context.by, uid)
    return topic, message


def _delivery(context: Context, name: str) -> tuple[Topic, Group, Message]:
    check_group(context.caller, name)
    topic = context.topic(consistent=True)
    group = context.deps.catalog.group(topic, name, consistent=True)
    message = context.deps.lookup.find_with_dead_letters(topic, context.params["id"], context.may_use_group)
    if not isinstance(message, Message):
        raise NotFound("DELIVERY_NOT_FOUND", "The message is not in its log yet: no group gets it before.")
    return topic, group, message


def _consumer_uid(context: Context, topic: Topic, group: Group, name: str | None) -> str:
    """The uid of the consumer whose delivery it is; "" unless the group is a broadcast."""
    if not POLICIES[group.mode].per_consumer:
        if name is not None:
            words = f"Group {group.name!r} is {group.mode}: its consumers share the deliveries."
            raise Refused("WRONG_MODE", words)
        return ""
    if name is None:
        raise broadcast_needs_consumer()
    check_name("consumer", name)
    return context.deps.catalog.consumer(topic, group, name).uid


@call("POST", f"{GROUP}/purge", scopes=ADMIN, body=PurgeGroupBody)
def purge_group(context: Context) -> Response[Purged]:
    """Drop what the group is owed at this moment: backlog, retries, leases. It counts as skipped; dead letters stay."""
    topic, group = context.group(consistent=True)
    body, deps = context.body, context.deps
    _check_confirm(body.confirm, group.name)
    if body.consumer is UNSET:
        owners = deps.catalog.cursor_owners(topic, group)
    else:
        owners = [_consumer_uid(context, topic, group, body.consumer)]
    return Response({"purged": deps.purger.purge(topic, group, owners)})


@call("POST", f"{TOPIC}/purge", scopes=ADMIN, body=PurgeTopicBody, reach=Reach.GROUPS)
def purge_topic(context: Context) -> Response[Purged]:
    """Drop what all groups are owed, and cancel what is delayed; prepared messages and dead letters stay."""
    topic = context.topic(consistent=True)
    _check_confirm(context.body.confirm, topic.name)
    return Response({"purged": context.deps.purger.purge_topic(topic, context.by)})


def _check_confirm(given: str, name: str) -> None:
    if given != name:
        raise Malformed("CONFIRM_MISSING", f'A purge needs "confirm": "{name}" in its body.')


def changes(change: AmendBody, raw: bytes, now_ms: int, header_names: Collection[str] = ()) -> dict[str, Any]:
    """The fields of a draft that a PATCH changes. Raises Malformed if there are none. `header_names`: names of headers
    that the message has already; a reserved name is allowed only if it is among them."""
    fields = settings.given(change)
    if not fields:
        raise invalid("", "give what to change: body, deliver_at, headers or retry")
    draft_fields: dict[str, Any] = {}
    if "body" in fields:
        draft_fields |= {"body": parse.json_body(raw, change.body), "is_json": True, "content_type": JSON}
        draft_fields |= {"blob": None, "blob_bytes": 0}
    if "headers" in fields:
        parse.check_headers(fields["headers"], header_names)
        draft_fields["headers"] = fields["headers"]
    if "deliver_at" in fields:
        draft_fields["due_ms"] = parse.due(fields["deliver_at"], now_ms)
    if "retry" in fields:
        draft_fields |= parse.retry_of(fields["retry"])
    return draft_fields
