"""What answers have in common: kinds of values, times, pages."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Generic, NotRequired, TypedDict, TypeVar

from msgspec import Meta

from ...domain.times import calendar_time

if TYPE_CHECKING:
    from ..calls import Context

T = TypeVar("T")


def one_of(*values: str) -> Meta:
    """The schema of a text that is one of these."""
    return Meta(extra_json_schema={"enum": list(values)})


def either(*alternatives: Sequence[str]) -> Meta:
    """The schema of an object that has all fields of exactly one of these."""
    return Meta(extra_json_schema={"oneOf": [{"required": list(fields)} for fields in alternatives]})


Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Count = Annotated[int, Meta(ge=0)]
Base64 = Annotated[str, Meta(extra_json_schema={"contentEncoding": "base64"})]
Mode = Annotated[str, one_of("queue", "serial", "broadcast")]
Status = Annotated[str, one_of("NEW", "RUNNING", "SUCCESS", "RETRYING", "DEAD", "CANCELLED")]
"""Of a delivery; CANCELLED with its message."""
MessageStatus = Annotated[
    str, one_of("NEW", "RUNNING", "SUCCESS", "RETRYING", "DEAD", "DELAYED", "PREPARED", "CANCELLED")
]


class Page(TypedDict, Generic[T]):
    """One page of a list; the last one has no `next_page_token`."""

    items: Sequence[T]
    next_page_token: NotRequired[str]


def page(context: "Context", purpose: str, items: Sequence[T], next_start: Any) -> Page[T]:
    """One page of a list; `next_start` is where the next one starts, None at the end."""
    if next_start is None:
        return {"items": items}
    return {"items": items, "next_page_token": page_token(context, purpose, next_start)}


def page_token(context: "Context", purpose: str, position: Any) -> str:
    """What says where the next page starts, and nobody can make up."""
    return context.deps.signing_keys.sign(f"page:{purpose}", json.dumps(position))


@lru_cache(maxsize=1024)
def at(ms: int) -> str:
    """RFC 3339 in UTC with milliseconds."""
    moment = calendar_time(ms).replace(tzinfo=None)
    return f"{moment.isoformat()}.{ms % 1000:03d}Z"


def at_or_none(ms: int | None) -> str | None:
    """The same, where there is a time."""
    return at(ms) if ms is not None else None
