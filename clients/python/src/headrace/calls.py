"""One call of the HTTP interface, before it is sent."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from .moments import Moment

REQUEST = "Headrace-Request"
RESEND = "Headrace-Resend"
DOCS = "/docs"
"""A page. All else is answered by an object of JSON, or nothing."""
CONNECT_SECONDS = 5.0
_URL = re.compile(r"https?://[^/\s]", re.IGNORECASE)
_NO_PARTS = ("", ".", "..")  # HTTP clients take them out of a path, with what stands before them


@lru_cache(maxsize=1)
def agent() -> str:
    """The client's name and version, as it calls itself."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"headrace-python/{version('headrace')}"
    except PackageNotFoundError:  # run from its source
        return "headrace-python"


@dataclass(frozen=True)
class Call:
    """Method, path, and what goes with them. `repeatable`: after a lost answer it may be sent again; `is_send`: it is
    repeated for as long as the retries allow; `wait_seconds` is how long the service may take by what was asked;
    `first_sent` is the time of the first try, if there was one."""

    method: str
    path: str
    body: Any = None
    raw: bytes | None = None
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True
    is_send: bool = False
    wait_seconds: float = 0.0
    first_sent: Moment | None = None

    @property
    def target(self) -> str:
        """Path and query."""
        query = {name: str(value) for name, value in self.query.items() if value is not None}
        return f"{self.path}?{urlencode(query)}" if query else self.path

    def content(self) -> bytes | None:
        """The body as it is sent."""
        if self.raw is not None:
            return self.raw
        return None if self.body is None else encode(self.body)


@dataclass(frozen=True)
class Request:
    """One try of a call, at one address. The connection, and each part of the answer, may take `seconds`, all of it
    until this time of the monotonic clock. `first_sent`: it says since when it comes again."""

    method: str
    url: str
    target: str
    content: bytes | None
    headers: Mapping[str, str]
    seconds: float
    until: float
    is_waiting: bool
    first_sent: Moment | None


def path(*parts: str) -> str:
    """A path of quoted parts below /v1. ValueError for a part that would make it another path: that of what the
    part lies in."""
    for part in parts:
        if not isinstance(part, str) or part in _NO_PARTS:
            raise ValueError(f"{part!r} is no name and no id.")
    return _joined(parts)


@lru_cache(1024)
def _joined(parts: tuple[str, ...]) -> str:
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def is_url(text: str) -> bool:
    """Is this a whole URL of HTTP? Not where its port is no number, say."""
    try:
        return bool(_URL.match(text)) and urlsplit(text).port != 0
    except ValueError:
        return False


def encode(value: Any) -> bytes:
    """JSON, also of dataclasses, msgspec structs, pydantic models, dates and decimals. TypeError for the rest, and
    ValueError for NaN and infinity, which would be sent as null."""
    text = msgspec.json.encode(value, enc_hook=_plain)
    if b"null" in text and not _is_finite(msgspec.to_builtins(value, str_keys=True, enc_hook=_as_sent)):
        raise ValueError("NaN and infinity have no JSON form.")
    return text


def _as_sent(value: Any) -> Any:
    return None if isinstance(value, msgspec.Raw) else _plain(value)


def _is_finite(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _plain(value: Any) -> Any:
    dump: Callable[..., Any] | None = getattr(value, "model_dump", None)  # pydantic
    if dump is not None:
        return dump(mode="json")
    raise TypeError(
        f"{type(value).__name__!r} has no JSON form; send bytes, or something of dicts and lists."
    )


def given(**fields: Any) -> dict[str, Any]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}
