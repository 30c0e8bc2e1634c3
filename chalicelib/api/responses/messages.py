"""Messages: as they are received, and as they stand, in their log or before it."""

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Raw

from ...domain import ids
from ...domain.message import Draft, Message, holds_json, overall
from ...domain.receipt import sign_receipt
from ...domain.status import OVER
from ...domain.timer import ANY
from ...domain.topic import Topic
from ...domain.transaction import Transaction, TransactionState
from ..problems import Problem
from .common import Base64, Count, MessageStatus, Time, at, either
from .statuses import DeliveryView, GroupFate, delivery

if TYPE_CHECKING:
    from ...services.consume.claimant import ClaimedMessage
    from ...services.inspect.statuses import DeliveryStatus
    from ...services.produce.delayed import DelayedMessage


class Body(TypedDict, total=False):
    """A message's body: JSON in `body`, or else `body_base64`. Of a damaged one nothing is left: `undecodable`."""

    body: Any
    body_base64: Base64
    undecodable: Literal[True]


class Content(Body):
    """What the producer gave, and when: the body is JSON in `body`, or else `body_base64`; of a damaged one nothing is
    left, and `undecodable` says so."""

    id: str
    content_type: str
    keys: Sequence[str]
    tag: str | None
    ordering_key: str | None
    headers: Mapping[str, str]
    accepted_at: Time
    deliver_at: NotRequired[Time]
    expires_at: NotRequired[Time]
    changed_at: NotRequired[Time]


class ReceivedMessage(Content):
    """A message under a lease, with the receipt that settles it."""

    shard: Count
    offset: Count
    attempt: Count
    receipt: str


class Received(TypedDict):
    """The messages of one receive; empty if none arrived in time."""

    messages: list[ReceivedMessage]


class StoredContent(Content):
    """What the producer gave; the bytes of its body, and the transaction it came from."""

    size: Count
    transaction_id: str | None


class MessageSummary(StoredContent):
    """A message and its status over all groups. Before it enters the log it has no offset, and no shard unless one was
    given."""

    shard: Count | None
    offset: Count | None
    topic: str
    status: MessageStatus
    retries_left: int


class MessageView(MessageSummary):
    """Everything known about a message, with its delivery for each group."""

    deliveries: dict[str, DeliveryView]


class FateView(TypedDict):
    """A message's state in every group. `skipped`: groups that do not get it, for they began behind it or were moved
    there by a seek; `complete`: every group has finished with it; `adds_up`: each delivery is in one place."""

    message: MessageSummary
    groups: dict[str, GroupFate]
    skipped: list[str]
    complete: bool
    adds_up: bool


def received_view(claimed_messages: "Sequence[ClaimedMessage]", key: bytes) -> Received:
    """Messages with their receipts, which `key` signs."""
    return {"messages": [_received_message(each, key) for each in claimed_messages]}


def _received_message(claimed_message: "ClaimedMessage", key: bytes) -> ReceivedMessage:
    message = claimed_message.message
    return {
        **_content(message),
        "shard": message.shard,
        "offset": message.offset,
        "attempt": claimed_message.attempt,
        "receipt": sign_receipt(key, claimed_message.receipt),
    }


class RescheduledMessage(TypedDict):
    """The result for one delayed message: its new time (null: it was cancelled); if `changed` is false, it was the same
    before. Or the error."""

    id: str
    changed: NotRequired[bool]
    deliver_at: NotRequired[Time | None]
    error: NotRequired[Problem]


Rescheduled = Annotated[RescheduledMessage, either(["changed", "deliver_at"], ["error"])]


def logged_view(
    topic: Topic,
    message: Message,
    statuses: "Mapping[str, DeliveryStatus]",
    may_use_group: "Callable[[str], bool]",
) -> MessageView:
    """A message in its log: its status over all groups, its deliveries for those that the caller may use."""
    retries_left = [status.retries_left for status in statuses.values() if status.status not in OVER]
    return {
        **content(message),
        "shard": message.shard,
        "offset": message.offset,
        "topic": topic.name,
        "status": overall(message.draft, [status.status for status in statuses.values()]),
        "retries_left": max(retries_left, default=0) if statuses else _retries(topic, message),
        "deliveries": {name: delivery(status) for name, status in statuses.items() if may_use_group(name)},
    }


def delayed_view(topic: Topic, delayed: "DelayedMessage", message: Message) -> MessageView:
    """A message (with its body) before its log: it waits for its time, or was cancelled."""
    shard = delayed.timer.shard.shard
    return {
        **content(message),
        "deliver_at": at(delayed.timer.due_ms),
        "shard": None if shard == ANY else shard,
        "offset": None,
        "topic": topic.name,
        "status": "CANCELLED" if delayed.cancelled else "DELAYED",
        "retries_left": 0 if delayed.cancelled else _retries(topic, message),
        "deliveries": {},
    }


def prepared_view(topic: Topic, transaction: Transaction, message: Message) -> MessageView:
    """A message (with its body) whose transaction is not committed."""
    is_cancelled = transaction.state is TransactionState.ROLLED_BACK
    return {
        **content(message),
        "shard": transaction.shard,
        "offset": None,
        "topic": topic.name,
        "status": "CANCELLED" if is_cancelled else "PREPARED",
        "retries_left": 0 if is_cancelled else _retries(topic, message),
        "deliveries": {},
    }


def content(message: Message) -> StoredContent:
    """What the producer gave, and what follows from it."""
    return {
        **_content(message),
        "size": message.draft.size,
        "transaction_id": ids.parse_half_id(message.id),
    }


def _content(message: Message) -> Content:
    draft = message.draft
    body: Content = {
        "id": message.id,
        **_body(draft),
        "content_type": draft.content_type,
        "keys": draft.keys,
        "tag": draft.tag,
        "ordering_key": draft.ordering_key,
        "headers": draft.headers,
        "accepted_at": at(message.first_accepted_ms),
    }
    if draft.due_ms is not None:
        body["deliver_at"] = at(draft.due_ms)
    if draft.expires_ms is not None:
        body["expires_at"] = at(draft.expires_ms)
    if draft.changed_ms is not None:
        body["changed_at"] = at(draft.changed_ms)
    return body


def _body(draft: Draft) -> Body:
    if not draft.has_body:
        return {"body": None, "undecodable": True}
    if holds_json(draft):
        return {"body": Raw(draft.body)}
    return {"body_base64": base64.b64encode(draft.body).decode()}


def _retries(topic: Topic, message: Message) -> int:
    """How many retries a message has that nobody has tried yet, where no group says otherwise."""
    return (message.draft.max_attempts or topic.retry.max_attempts) - 1
