"""The kinds of values in requests and answers, and the bodies that several calls share.

The files of types do not import `annotations` from `__future__`: kept as texts, the types of a TypedDict take six times
as long to import.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Annotated, Any, TypeVar, cast
from urllib.parse import urlsplit

from msgspec import UNSET, Meta, Struct

from ..domain import limits as lim
from ..domain.times import DAY_SECONDS, rfc3339

T = TypeVar("T")
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z"
Name = Annotated[str, Meta(pattern=NAME)]
TEXT = r"^[^\x00-\x1f\x7f-\x9f]*[^\x00-\x20\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*\Z"  # no control characters, not blank
Key = Annotated[str, Meta(min_length=1, max_length=lim.MAX_KEY_CHARS, pattern=TEXT)]
HOST = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z"  # in lower case, without a port
Host = Annotated[str, Meta(max_length=253, pattern=HOST)]
TAG = r"^[^|\s\x00-\x1f\x7f-\x9f]+\Z"
Tag = Annotated[str, Meta(min_length=1, max_length=lim.MAX_TAG_CHARS, pattern=TAG)]
Tenant = Annotated[str, Meta(min_length=1, max_length=lim.MAX_TENANT_CHARS, pattern=TEXT)]
HEADER_NAME = rf"^[A-Za-z0-9!#$%&'*+.^_`~-]{{1,{lim.MAX_HEADER_NAME_CHARS}}}\Z"
HeaderName = Annotated[str, Meta(pattern=HEADER_NAME)]
HEADER_VALUE = r"^[^\x00-\x08\x0a-\x1f\x7f-\x9f]*\Z"
HeaderValue = Annotated[str, Meta(max_length=lim.MAX_HEADER_VALUE_CHARS, pattern=HEADER_VALUE)]
POINTER = r"^(?:/(?:[^~/\x00-\x1f]|~[01])*)+\Z"
Pointer = Annotated[str, Meta(max_length=lim.MAX_POINTER_CHARS, pattern=POINTER)]
LeaseSeconds = Annotated[int, Meta(ge=1, le=lim.MAX_LEASE_SECONDS)]
# A message's: parse.check_delay refuses a longer one with 422, not 400.
MessageDelay = Annotated[int, Meta(ge=0, extra_json_schema={"maximum": lim.MAX_DELAY_SECONDS})]
TOPIC_PATTERN = r"^[A-Za-z0-9._*-]{1,128}\Z"
TopicPattern = Annotated[str, Meta(pattern=TOPIC_PATTERN)]
MEDIA_TYPE = r"^[\x20-\x7e]+\Z"
MediaType = Annotated[str, Meta(min_length=1, max_length=lim.MAX_CONTENT_TYPE_CHARS, pattern=MEDIA_TYPE)]
JOB_PATTERN = r"^[!->@-Z^-~]{1,128}\Z"
STATIC_VALUE = r"^[!-~]([ -~]*[!-~])?\Z"
StaticValue = Annotated[str, Meta(min_length=1, pattern=STATIC_VALUE)]
StaticHeaders = Annotated[dict[HeaderName, StaticValue], Meta(max_length=lim.MAX_STATIC_HEADERS)]
TIMEZONE = r"^[A-Za-z0-9_+/-]+\Z"
APP = r"^[A-Za-z0-9._/-]{1,64}\Z"
Priority = Annotated[int, Meta(ge=0, lt=lim.MAX_PRIORITIES)]
Step = Annotated[int, Meta(ge=1, le=lim.MAX_RETRY_SECONDS)]


def one_of(*values: str) -> Meta:
    """The schema of a text that is one of these."""
    return Meta(extra_json_schema={"enum": list(values)})


def either(*alternatives: Sequence[str]) -> Meta:
    """The schema of an object that has all fields of exactly one of these."""
    return Meta(extra_json_schema={"oneOf": [{"required": list(fields)} for fields in alternatives]})


Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Count = Annotated[int, Meta(ge=0)]
Base64 = Annotated[str, Meta(extra_json_schema={"contentEncoding": "base64"})]
# Of a delivery; CANCELLED with its message.
Status = Annotated[str, one_of("NEW", "RUNNING", "SUCCESS", "RETRYING", "DEAD", "CANCELLED")]
_OF_MESSAGES = "NEW", "RUNNING", "SUCCESS", "RETRYING", "DEAD", "DELAYED", "PREPARED", "CANCELLED"
MessageStatus = Annotated[str, one_of(*_OF_MESSAGES)]


class NoBody(Struct, forbid_unknown_fields=True):
    """No fields: `{}` or no body."""


# A process that works under a consumer's name.
Instance = Annotated[str, Meta(min_length=1, max_length=lim.MAX_INSTANCE_CHARS)]


class RotateBody(Struct, forbid_unknown_fields=True):
    """A rotation of a token, a secret or the signing key: how long the old one stays valid, too."""

    overlap_seconds: Annotated[int, Meta(ge=0, le=lim.MAX_OVERLAP_SECONDS)] = DAY_SECONDS


at = lru_cache(maxsize=1024)(rfc3339)  # answers have the same times again and again


def at_or_none(ms: int | None) -> str | None:
    """A time as answers have it, where there is one."""
    return at(ms) if ms is not None else None


def taken(source: object, *names: str) -> dict[str, Any]:
    """The fields of an answer that `source` has by the same names; a time like `created_at` is its `created_ms`."""
    return {name: _taken(source, name) for name in names}


def _taken(source: object, name: str) -> Any:
    value = getattr(source, name, UNSET)
    return at_or_none(getattr(source, f"{name.removesuffix('_at')}_ms")) if value is UNSET else value


def without_path(url: str) -> str:
    """A URL without what may be a secret: its path, its query, its user."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/…"


def some(fields: dict[str, Any]) -> dict[str, Any]:
    """Those that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def shown(view: type[T], source: object, **others: Any) -> T:
    """An answer of this type: the fields that it always has as `source` has them, and `others`."""
    fields = taken(source, *(name for name in _always_there(cast(Any, view)) if name not in others))
    return cast(T, fields | others)


@cache
def _always_there(view: Any) -> tuple[str, ...]:
    return tuple(name for name in view.__annotations__ if name in view.__required_keys__)
