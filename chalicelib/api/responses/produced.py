"""Where messages were stored, one or a batch."""

from typing import TYPE_CHECKING, Annotated, NotRequired, Required, TypedDict

from ...domain.errors import HeadraceError
from ..problems import Problem, problem
from .common import Count, MessageStatus, Time, at, either

if TYPE_CHECKING:
    from ...services.produce.appender import ProduceResult


class Produced(TypedDict):
    """Where a message was stored; a delayed message has no offset before it is due. For a `duplicate`, all fields
    describe the first message."""

    id: str
    topic: str
    status: MessageStatus
    shard: Count | None
    offset: Count | None
    accepted_at: Time
    deliver_at: NotRequired[Time]
    duplicate: bool


class BatchItem(TypedDict, total=False):
    """Where one message of a batch was stored, or the error."""

    index: Required[Count]
    id: str
    topic: str
    status: MessageStatus
    shard: Count | None
    offset: Count | None
    accepted_at: Time
    deliver_at: Time
    duplicate: bool
    error: Problem


class BatchView(TypedDict):
    """The result for each message of a batch, in the same order."""

    results: list[Annotated[BatchItem, either(sorted(Produced.__required_keys__), ["error"])]]


def view(topic: str, message: "ProduceResult", status: str | None = None) -> Produced:
    """Where a message was stored; `status` is what has become of one that was stored before."""
    body: Produced = {
        "id": message.id,
        "topic": topic,
        "status": status or ("NEW" if message.due_ms is None else "DELAYED"),
        "shard": message.shard,
        "offset": message.offset,
        "accepted_at": at(message.accepted_ms),
        "duplicate": message.duplicate,
    }
    if message.due_ms is not None:
        body["deliver_at"] = at(message.due_ms)
    return body


def item(index: int, outcome: Produced | HeadraceError, request_id: str) -> BatchItem:
    """One message of a batch."""
    if isinstance(outcome, HeadraceError):
        return {"index": index, "error": problem(outcome, request_id)}
    return {"index": index, **outcome}
