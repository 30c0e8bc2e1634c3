"""What can go wrong, by code. Every error says whether to try again, and what to do.

    HeadraceError
    ├── BadRequest        the request cannot be read (400)
    ├── Unauthorized      no valid token (401)
    ├── Forbidden         the token lacks a scope or a topic (403)
    ├── NotFound          the named thing does not exist (404)
    ├── Conflict          the state of things does not allow it (409)
    ├── TooLarge          over a size limit (413)
    ├── Refused           well-formed, but not allowed (422, 415)
    ├── TooMany           slow down (429)
    ├── Unavailable       unknown outcome, safe to repeat (5xx)
    │   └── NoAnswer      nothing came back: no connection, a time-out, a cut
    └── ClientClosed      the client was closed before the call

Most codes have a class of their own below these, so that `except TopicNotFound` reads as it should.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from . import typed
from .durations import asked_wait


@dataclass(frozen=True)
class Issue:
    """One thing wrong with a request: the path of the field and what is wrong with it."""

    path: str
    issue: str


class HeadraceError(Exception):
    """Base of everything Headrace refuses. `code` is stable; `status` is 0 where nothing came back."""

    of_code: ClassVar[str | None] = None
    of_status: ClassVar[int | None] = None

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        status: int = 0,
        retryable: bool = False,
        retry_after: float | None = None,
        request_id: str | None = None,
        issues: tuple[Issue, ...] = (),
    ) -> None:
        """`retry_after` is in seconds, `request_id` what to name when reporting a fault."""
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.status = status
        self.retryable = retryable
        self.retry_after = retry_after
        self.request_id = request_id
        self.issues = issues

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.code, self.detail, self.__dict__)


def _rebuilt(kind: type[HeadraceError], code: str, detail: str, state: dict[str, Any]) -> HeadraceError:
    error = kind(code, detail)
    error.__dict__.update(state)
    return error


class BadRequest(HeadraceError):
    of_status: ClassVar[int | None] = 400


class Unauthorized(HeadraceError):
    of_status: ClassVar[int | None] = 401


class Forbidden(HeadraceError):
    of_status: ClassVar[int | None] = 403


class NotFound(HeadraceError):
    of_status: ClassVar[int | None] = 404


class Conflict(HeadraceError):
    of_status: ClassVar[int | None] = 409


class TooLarge(HeadraceError):
    of_status: ClassVar[int | None] = 413


class Refused(HeadraceError):
    of_status: ClassVar[int | None] = 422


class TooMany(HeadraceError):
    of_status: ClassVar[int | None] = 429


class Unavailable(HeadraceError):
    of_status: ClassVar[int | None] = 503


class NoAnswer(Unavailable):
    """Nothing came back, and what became of the request is unknown; where there was no connection, `was_sent` is false:
    then it did not reach the service."""

    was_sent = True
    of_status: ClassVar[int | None] = None
    of_code: ClassVar[str | None] = "NO_ANSWER"


class ClientClosed(HeadraceError):
    """The client was closed, so the call was not sent."""

    of_code: ClassVar[str | None] = "CLIENT_CLOSED"


class ValidationFailed(BadRequest):
    of_code: ClassVar[str | None] = "VALIDATION"


class ReceiptInvalid(BadRequest):
    of_code: ClassVar[str | None] = "RECEIPT_INVALID"


class PageTokenInvalid(BadRequest):
    of_code: ClassVar[str | None] = "PAGE_TOKEN_INVALID"


class ScopeMissing(Forbidden):
    of_code: ClassVar[str | None] = "SCOPE_MISSING"


class TopicForbidden(Forbidden):
    of_code: ClassVar[str | None] = "TOPIC_FORBIDDEN"


class TopicNotFound(NotFound):
    of_code: ClassVar[str | None] = "TOPIC_NOT_FOUND"


class GroupNotFound(NotFound):
    of_code: ClassVar[str | None] = "GROUP_NOT_FOUND"


class ConsumerNotFound(NotFound):
    of_code: ClassVar[str | None] = "CONSUMER_NOT_FOUND"


class MessageNotFound(NotFound):
    of_code: ClassVar[str | None] = "MESSAGE_NOT_FOUND"


class DeadLetterNotFound(NotFound):
    of_code: ClassVar[str | None] = "DEAD_LETTER_NOT_FOUND"


class JobNotFound(NotFound):
    of_code: ClassVar[str | None] = "JOB_NOT_FOUND"


class TransactionNotFound(NotFound):
    of_code: ClassVar[str | None] = "TRANSACTION_NOT_FOUND"


class ReplayNotFound(NotFound):
    of_code: ClassVar[str | None] = "REPLAY_NOT_FOUND"


class DedupMismatch(Conflict):
    of_code: ClassVar[str | None] = "DEDUP_MISMATCH"


class DedupDead(Conflict):
    of_code: ClassVar[str | None] = "DEDUP_DEAD"


class AlreadyClaimed(Conflict):
    of_code: ClassVar[str | None] = "ALREADY_CLAIMED"


class ConsumerTakenOver(Conflict):
    """A later process has the consumer's name: this one is to end."""

    of_code: ClassVar[str | None] = "CONSUMER_TAKEN_OVER"


class ReceiptStale(Conflict):
    of_code: ClassVar[str | None] = "RECEIPT_STALE"


class TransactionDecided(Conflict):
    of_code: ClassVar[str | None] = "TRANSACTION_DECIDED"


class BodyTooLarge(TooLarge):
    of_code: ClassVar[str | None] = "BODY_TOO_LARGE"


class BatchTooLarge(TooLarge):
    of_code: ClassVar[str | None] = "BATCH_TOO_LARGE"


class ResendTooLate(Conflict):
    """It is unknown whether an earlier try was stored; this one was not."""

    of_code: ClassVar[str | None] = "RESEND_TOO_LATE"


class RateLimited(TooMany):
    of_code: ClassVar[str | None] = "RATE_LIMITED"


def _all(kind: type[HeadraceError]) -> Iterator[type[HeadraceError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _all(below)


_BY_CODE = {kind.of_code: kind for kind in _all(HeadraceError) if kind.of_code}
_BY_STATUS = {kind.of_status: kind for kind in _all(HeadraceError) if vars(kind).get("of_status")}
_ALIKE = {405: 404, 414: 413, 415: 422, 431: 413}


def no_answer(url: str, why: str | BaseException, *, was_sent: bool = True) -> NoAnswer:
    """The error of a request without an answer. Of an error, what is in the way, without those in which libraries wrap
    it. A certificate that is not trusted is not tried again: it stays so."""
    chain = [why, *_causes_of(why)] if isinstance(why, BaseException) else [why]
    untrusted = [each for each in chain if type(each).__name__ == "SSLCertVerificationError"]
    reason = (untrusted or chain)[-1]
    advice = "SSL_CERT_FILE names the certificates to trust." if untrusted else "Is the service up?"
    detail = f"No answer from {url} ({str(reason) or type(reason).__name__}). {advice}"
    error = NoAnswer("NO_ANSWER", detail, retryable=not untrusted)
    error.was_sent = was_sent and not untrusted
    return error


def _causes_of(error: BaseException) -> Iterator[BaseException]:
    while cause := error.__cause__ or error.__context__:  # httpcore hides its own
        yield cause
        error = cause


def closed_error() -> ClientClosed:
    """The error of a call after `close`."""
    return ClientClosed("CLIENT_CLOSED", "This client was closed; nothing was sent. Make a new one.")


def kind_of(code: str, status: int) -> type[HeadraceError]:
    """The class of an error: by its code, else by its status."""
    if code in _BY_CODE:
        return _BY_CODE[code]
    if status >= 500:
        return Unavailable
    return _BY_STATUS.get(_ALIKE.get(status, status), HeadraceError)


class _Problem(msgspec.Struct):
    """A problem document (RFC 9457) of Headrace."""

    code: str
    status: int = 0
    title: str = ""
    detail: str = ""
    retryable: bool | None = None
    request_id: str | None = None
    errors: list[Issue] = []


def of_problem(problem: Mapping[str, Any]) -> HeadraceError:
    """The error in a problem document (RFC 9457). ValueError for any other document."""
    return _error_of(typed.converted(problem, _Problem))


def of_answer(status: int, headers: Mapping[str, str], raw: bytes, now: float) -> HeadraceError:
    """The error of an answer that is none of success. What is no problem document comes from something in between.
    `now`: when the answer came, in seconds since 1970."""
    try:
        problem = typed.decoded(raw, _Problem)
    except ValueError:  # it has forms of its own
        problem = _Problem(code=f"HTTP_{status}", detail=f"Status {status}: {_text_of(raw)}")
    problem.status = status
    return _error_of(problem, asked_wait(headers.get("retry-after"), now))


def _text_of(raw: bytes) -> str:
    try:
        return typed.decoded(raw, _Message).message
    except ValueError:
        return raw[:200].decode(errors="replace") or "no text"


class _Message(msgspec.Struct):
    """As API Gateway says it."""

    message: str


def _error_of(problem: _Problem, retry_after: float | None = None) -> HeadraceError:
    status, retryable = problem.status, problem.retryable
    return kind_of(problem.code, status)(
        problem.code,
        problem.detail or problem.title or "No detail was given.",
        status=status,
        retryable=status >= 500 or status == 429 if retryable is None else retryable,
        retry_after=retry_after,
        request_id=problem.request_id,
        issues=tuple(problem.errors),
    )
