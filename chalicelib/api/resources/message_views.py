"""What answers say about a message: its content, its deliveries, its trace."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Required, TypedDict, cast

from ...domain import call_result, ids
from ...domain.message import DeadReason, Message, body_fields
from ...domain.trace import ATTEMPTS
from ..fields import Base64, Count, Status, Time, at, at_or_none, one_of, shown, some, taken

if TYPE_CHECKING:
    from ...services.inspect.fate import MessageFate
    from ...services.inspect.statuses import DeliveryStatus
    from ...services.inspect.trace import Event


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
    priority: NotRequired[Count]
    job: NotRequired[str]
    callback_url: NotRequired[str]
    tenant: NotRequired[str]
    headers: Mapping[str, str]
    accepted_at: Time
    sent_at: NotRequired[Time]
    deliver_at: NotRequired[Time]
    expires_at: NotRequired[Time]
    changed_at: NotRequired[Time]
    schedule: NotRequired[str]
    scheduled_at: NotRequired[Time]


class StoredContent(Content):
    """What the producer gave; the bytes of its body, and the transaction it came from."""

    size: Count
    transaction_id: str | None


# Why a delivery is dead.
Reason = Annotated[str, one_of(*DeadReason)]
_PLACES = "log", "cursor", "lease", "timer", "retry lane", "dead letter", "settled", "unknown"
Place = Annotated[str, one_of(*_PLACES)]
EventName = Annotated[
    str,
    one_of(
        "prepared", "accepted", "delayed", "edited", "postponed", "cancelled", "due", "leased", "delivered", "buried",
        "redriven", "deleted", "retried", "settled", "sought",
    ),
]  # fmt: skip
Outcome = Annotated[str, one_of(*ATTEMPTS)]


class Answer(TypedDict):
    """What a subscriber answered to a failed attempt: its status (null: a function's), and the first 500 bytes of its
    text, with secrets hidden."""

    status: Count | None
    content_type: str
    text: str


class DeliveryView(TypedDict):
    """A message's delivery to a group; in a broadcast, to each of its consumers. If it is DEAD it has a `reason`."""

    status: Status
    attempts: Count
    next_attempt_at: Time | None
    last_error: str | None
    retries_left: int
    answer: NotRequired[Answer]
    reason: NotRequired[str]
    consumers: NotRequired[dict[str, Status]]


class Retried(TypedDict, total=False):
    """The state of a delivery after the request to retry or settle it: the fields of DeliveryView, all missing
    where the group is not owed the message, or its row is unreadable."""

    id: Required[str]
    group: Required[str]
    status: Status
    attempts: Count
    next_attempt_at: Time | None
    last_error: str | None
    retries_left: int
    answer: Answer
    reason: str
    consumers: dict[str, Status]


class GroupFate(DeliveryView):
    """A delivery and its place (in a broadcast: those of its consumers); `older` is the place of an older delivery,
    from before a seek, that still exists."""

    places: list[Place]
    older: list[Status]
    adds_up: bool


class TokenName(TypedDict):
    """A token; its name is null once it is revoked."""

    id: str
    name: str | None


class EventView(TypedDict):
    """One event of a message. What a producer or an admin did has `by`, what a consumer did has `consumer`; a lease has
    its `owner` and `deadline_at`, a delay its `deliver_at`. The first has the producer's `app`, as it said, and its
    `address`."""

    at: Time
    event: EventName
    shard: Count | None
    group: str | None
    consumer: str | None
    attempt: Count | None
    rank: Count | None
    total: Count | None
    duration_ms: Count | None
    outcome: Outcome | None
    detail: str | None
    answer: NotRequired[Answer]
    app: NotRequired[str]
    address: NotRequired[str]
    by: NotRequired[TokenName | None]
    owner: NotRequired[str | None]
    deadline_at: NotRequired[Time]
    deliver_at: NotRequired[Time]


class TraceView(TypedDict):
    """A message's events, in order of time."""

    events: list[EventView]


def content(message: Message) -> StoredContent:
    """What the producer gave, and what follows from it."""
    transaction_id = ids.parse_half_id(message.id)
    return {**base_content(message), "size": message.draft.size, "transaction_id": transaction_id}


def base_content(message: Message) -> Content:
    draft = message.draft
    body = {
        "id": message.id,
        **(body_fields(draft) or {"body": None, "undecodable": True}),
        **taken(draft, "content_type", "keys", "tag", "ordering_key", "headers"),
        "accepted_at": at(message.first_accepted_ms),
    }
    times = {**taken(draft, "sent_at", "expires_at", "changed_at"), "deliver_at": at_or_none(draft.due_ms)}
    more = taken(draft, "job", "tenant", "priority", "callback_url") | times
    if draft.firing:
        more |= {"schedule": draft.firing.schedule, "scheduled_at": at(draft.firing.at_ms)}
    return cast(Content, body | some(more))


_DONE_BY_SOMEBODY = {
    "prepared", "accepted", "delayed", "edited", "postponed", "cancelled", "redriven", "deleted", "retried", "settled",
    "sought",
}  # fmt: skip


def delivery(status: "DeliveryStatus") -> DeliveryView:
    """How far a group is with a message."""
    body = shown(DeliveryView, status)
    if status.answer:
        body["answer"] = answer_view(status.answer)
    if status.reason:
        body["reason"] = status.reason
    if status.consumers:
        body["consumers"] = {name: each.status for name, each in status.consumers.items()}
    return body


def answer_view(answer: call_result.Answer) -> Answer:
    """A subscriber's answer."""
    return shown(Answer, answer)


def retried_view(message_id: str, group: str, status: "DeliveryStatus | None") -> Retried:
    """A delivery that was to be tried at once; without a status where the group is not owed it any more."""
    body: Retried = {"id": message_id, "group": group}
    return {**body, **delivery(status)} if status else body


def fate_view(of: "MessageFate") -> GroupFate:
    """A group's part in a message's fate."""
    return shown(GroupFate, of, **delivery(of.status), places=[str(place) for place in of.places])


def event_view(of: "Event", names: Mapping[str, str | None]) -> EventView:
    """One event of a message's trace. `names` maps token ids to names (None: the token was deleted)."""
    body = shown(EventView, of, **{name: text for name in ("app", "address") if (text := getattr(of, name))})
    if of.answer:
        body["answer"] = answer_view(of.answer)
    if of.event in _DONE_BY_SOMEBODY:
        body["by"] = {"id": of.by, "name": names.get(of.by)} if of.by else None
    if of.deliver_ms is not None:
        body["deliver_at"] = at(of.deliver_ms)
    if of.deadline_ms is not None:
        body["owner"], body["deadline_at"] = of.owner, at(of.deadline_ms)
    return body
