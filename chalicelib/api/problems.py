"""Errors as `application/problem+json` (RFC 9457), and what is wrong with a request in our words."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NotRequired, TypedDict

from ..domain import errors
from ..domain.limits import MAX_HEADER_NAME_CHARS
from . import fields

STATUS: Mapping[type[errors.HeadraceError], tuple[int, str]] = {
    errors.Malformed: (400, "Bad request"),
    errors.Unauthorized: (401, "Unauthorized"),
    errors.Forbidden: (403, "Forbidden"),
    errors.NotFound: (404, "Not found"),
    errors.MethodNotAllowed: (405, "Method not allowed"),
    errors.Conflict: (409, "Conflict"),
    errors.ChangedMeanwhile: (409, "Conflict"),
    errors.TooLarge: (413, "Too large"),
    errors.UnsupportedMedia: (415, "Unsupported media type"),
    errors.Refused: (422, "Not allowed"),
    errors.TooMany: (429, "Too many requests"),
    errors.Unavailable: (503, "Unavailable"),
}
MEDIA_TYPE = "application/problem+json"
EVERYWHERE: Mapping[str, str] = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
ONLY_HTTPS: Mapping[str, str] = {"Strict-Transport-Security": "max-age=31536000"}

_WHERE = re.compile(r"(.*) - at `(?:key` in `)?\$?\.?(.*)`\Z", re.DOTALL)
_VALUE = re.compile(r"Invalid (?:enum )?value '.*'\Z", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`\Z", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`\Z", re.DOTALL)
_STEP = re.compile(r"[^.\[]+|\[")
_MAX_NAME_CHARS = 64
PATTERNS = {
    fields.NAME: "must match [A-Za-z0-9][A-Za-z0-9._-]{0,127}",
    fields.TEXT: "must not be blank, and have no control characters",
    fields.TAG: "must have no spaces, no control characters and no |",
    fields.HEADER_NAME: f"names must have 1 to {MAX_HEADER_NAME_CHARS} letters, digits or !#$%&'*+.^_`~-",
    fields.HEADER_VALUE: "must have no line breaks and no other control characters",
    fields.TOPIC_PATTERN: "must have 1 to 128 letters, digits, ., _ or -, and * for any number of them",
    fields.MEDIA_TYPE: "must have printable ASCII characters only",
    fields.POINTER: "must be a JSON pointer, such as /card/number",
    fields.JOB_PATTERN: "must have 1 to 128 printable ASCII characters, without ?, [, \\ and ]",
    fields.STATIC_VALUE: "must have printable ASCII characters only, and no spaces at its ends",
    fields.TIMEZONE: "must be the name of a time zone, such as Europe/Zurich",
    fields.HOST: "must be a host in lower case, without a port, such as api.example.com",
    fields.APP: "must have 1 to 64 letters, digits, ., _, / or -",
}
_UNMATCHED = {f"Expected `str` matching regex {pattern!r}": words for pattern, words in PATTERNS.items()}


class ProblemIssue(TypedDict):
    """One thing wrong with a request: the path of a field, and what is wrong with it."""

    path: str
    issue: str


class Problem(TypedDict):
    """Why a call was refused (RFC 9457). `code` is stable; `retryable`: the same request may succeed later."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    retryable: bool
    request_id: str
    errors: NotRequired[list[ProblemIssue]]


def status_of(error: errors.HeadraceError) -> tuple[int, str]:
    """The status and title of an error, or of the kind that it is of."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def problem(error: errors.HeadraceError, request_id: str) -> Problem:
    """The problem document of an error."""
    status, title = status_of(error)
    whole = {"type": f"/errors/{error.code}", "title": title, "status": status, "request_id": request_id}
    document = fields.shown(Problem, error, **whole)
    if error.issues:
        document["errors"] = [{"path": i.path, "issue": i.issue} for i in error.issues]
    return document


def headers(error: errors.HeadraceError) -> dict[str, str]:
    """The headers that go with an error."""
    after = error.retry_after_seconds
    if after is None and type(error) in (errors.TooMany, errors.Unavailable):
        after = 1
    asks = {"WWW-Authenticate": "Bearer"} if isinstance(error, errors.Unauthorized) else {}
    return {"Content-Type": MEDIA_TYPE, **({"Retry-After": str(after)} if after is not None else {}), **asks}


def issue_of(text: str, kind: type, at: str = "") -> errors.Issue:
    """The issue that a msgspec error reports, in a value that should be of this type and stands at `at`."""
    match = _WHERE.match(text)
    reason, path = (match[1], match[2]) if match else (text, "")
    if extra := _UNKNOWN.match(reason):
        path, reason = _dotted_path(path, extra[1][:_MAX_NAME_CHARS]), "unknown field"
    elif lack := _MISSING.match(reason):
        path, reason = _dotted_path(path, lack[1]), "is missing"
    elif _VALUE.match(reason):
        reason = f"must be one of {', '.join(map(str, _choices(kind, path)))}"
    return errors.Issue(_dotted_path(at, path), _UNMATCHED.get(reason, reason))


def _dotted_path(*parts: str) -> str:
    return ".".join(part for part in parts if part)


def _choices(kind: type, path: str) -> list[Any]:
    """The values that the field at a path may have, where they are fixed."""
    from msgspec import inspect  # only refusals need it

    def flat(kinds: list[inspect.Type]) -> Iterator[inspect.Type]:
        for one in kinds:
            if isinstance(one, inspect.Metadata):
                yield from flat([one.type])
            else:
                yield from flat(list(one.types)) if isinstance(one, inspect.UnionType) else [one]

    def inner(of: inspect.Type, step: str) -> list[inspect.Type]:
        if isinstance(of, inspect.StructType):
            return [field.type for field in of.fields if field.encode_name == step]
        if isinstance(of, inspect.ListType | inspect.VarTupleType) and step == "[":
            return [of.item_type]
        return []

    kinds = [inspect.type_info(kind)]
    for step in _STEP.findall(re.sub(r"\[.*?\]", "[", path)):
        kinds = [below for of in flat(kinds) for below in inner(of, step)]
    ends = list(flat(kinds))
    literals = [value for of in ends if isinstance(of, inspect.LiteralType) for value in of.values]
    return literals + [one.value for of in ends if isinstance(of, inspect.EnumType) for one in of.cls]
