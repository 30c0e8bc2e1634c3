"""Errors as `application/problem+json` (RFC 9457)."""

from collections.abc import Mapping
from typing import NotRequired, TypedDict

from ..domain import errors
from ..domain.errors import HeadraceError

STATUS: Mapping[type[HeadraceError], tuple[int, str]] = {
    errors.Malformed: (400, "Bad request"),
    errors.Unauthorized: (401, "Unauthorized"),
    errors.Forbidden: (403, "Forbidden"),
    errors.NotFound: (404, "Not found"),
    errors.Conflict: (409, "Conflict"),
    errors.ChangedMeanwhile: (409, "Conflict"),
    errors.TooLarge: (413, "Too large"),
    errors.UnsupportedMedia: (415, "Unsupported media type"),
    errors.Refused: (422, "Not allowed"),
    errors.TooMany: (429, "Too many requests"),
    errors.Unavailable: (503, "Unavailable"),
}
METHOD_NOT_ALLOWED = 405
MEDIA_TYPE = "application/problem+json"
EVERYWHERE: Mapping[str, str] = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
ONLY_HTTPS: Mapping[str, str] = {"Strict-Transport-Security": "max-age=31536000"}


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


def status_of(error: HeadraceError) -> tuple[int, str]:
    """The status and title of an error, or of the kind that it is of."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def problem(error: HeadraceError, request_id: str) -> Problem:
    """The problem document of an error."""
    status, title = status_of(error)
    document: Problem = {
        "type": f"/errors/{error.code}",
        "title": title,
        "status": status,
        "detail": error.detail,
        "code": error.code,
        "retryable": error.retryable,
        "request_id": request_id,
    }
    if error.issues:
        document["errors"] = [{"path": i.path, "issue": i.issue} for i in error.issues]
    return document


def headers(error: HeadraceError) -> dict[str, str]:
    """The headers that go with an error."""
    after = error.retry_after_seconds
    if after is None and type(error) in (errors.TooMany, errors.Unavailable):
        after = 1
    return {"Content-Type": MEDIA_TYPE, **({"Retry-After": str(after)} if after is not None else {})}
