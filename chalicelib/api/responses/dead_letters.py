"""Dead letters of a group."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict

from ...domain.message import Message
from ..problems import Problem
from .common import Count, Time, at, either
from .messages import StoredContent, content
from .statuses import Reason

if TYPE_CHECKING:
    from ...domain.record import DeadLetter


class DeadLetterView(StoredContent):
    """A dead letter with its whole message. `edited`: the body was changed after it was sent."""

    shard: Count
    offset: Count
    reason: Reason
    attempts: Count
    last_error: str | None
    dead_at: Time
    edited: bool
    consumer: NotRequired[str | None]


class Redriven(TypedDict):
    """How many dead letters were redriven. `next_page_token`: it took long, and more may match behind the last that was
    looked at."""

    redriven: Count
    next_page_token: NotRequired[str]


class MergedLetter(TypedDict):
    """The result of a patch for one dead letter: its new body or, if `changed` is false, the old one. Or the error."""

    id: str
    changed: NotRequired[bool]
    body: NotRequired[Any]
    error: NotRequired[Problem]


Merged = Annotated[MergedLetter, either(["changed", "body"], ["error"])]


def view(letter: "DeadLetter", message: Message, names: Mapping[str, str]) -> DeadLetterView:
    """A dead letter; `message` is its own with the body, `names` tells consumers by uid."""
    body: DeadLetterView = {
        **content(message),
        "shard": message.shard,
        "offset": message.offset,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "last_error": letter.last_error,
        "dead_at": at(letter.at_ms),
        "edited": letter.edited,
    }
    if uid := letter.key.consumer_uid:
        body["consumer"] = names.get(uid)
    return body
