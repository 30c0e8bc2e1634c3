"""What a consumer that is called answered: its latest attempts, and a test."""

from typing import TYPE_CHECKING, Annotated, TypedDict

from ...domain.call_result import Verdict
from ...domain.exchange import Exchange
from .common import Count, Time, at, one_of
from .consumers import without_path
from .statuses import Outcome

if TYPE_CHECKING:
    from ...services.inspect.attempts import History, PastAttempt


class AttemptView(TypedDict):
    """One attempt, with the place of its message."""

    at: Time
    shard: Count
    offset: Count
    attempt: Count
    outcome: Outcome
    duration_ms: Count
    detail: str | None


class AttemptsView(TypedDict):
    """The latest attempts at a consumer, the newest first, and how long they took (null: none has ended).
    `complete`: there are no others. Only the end of each shard's log is read, of 16 shards at most: for a retry of an
    older message see that message's trace."""

    items: list[AttemptView]
    p50_ms: Count | None
    p95_ms: Count | None
    complete: bool


class TestRequest(TypedDict):
    """The request that was sent to a URL, or the event that was sent to the function of this name, without headers."""

    method: Annotated[str, one_of("POST", "INVOKE")]
    url: str
    headers: dict[str, str]
    body: str


class TestAnswer(TypedDict):
    """The answer to a test. A function's answer has no `status` and no headers. `body` is its first 1,024 bytes as
    text, of `body_bytes` (at most 65,536 are read). Headers and body are null for a token without the scope `admin`."""

    status: Count | None
    headers: dict[str, str] | None
    body: str | None
    body_bytes: Count


class TestView(TypedDict):
    """A test event and its answer (null: there was none, and `detail` says why). `ok`: a message would have been
    settled as SUCCESS."""

    ok: bool
    detail: str
    duration_ms: Count
    request: TestRequest
    answer: TestAnswer | None


def attempts(history: "History") -> AttemptsView:
    """The latest attempts."""
    return {
        "items": [_attempt(each) for each in history.attempts],
        "p50_ms": history.percentile_ms(50),
        "p95_ms": history.percentile_ms(95),
        "complete": history.is_whole,
    }


def _attempt(each: "PastAttempt") -> AttemptView:
    return {
        "at": at(each.at_ms),
        "shard": each.shard,
        "offset": each.offset,
        "attempt": each.attempt,
        "outcome": each.outcome,
        "duration_ms": each.duration_ms,
        "detail": each.detail or None,
    }


def test(exchange: Exchange, *, whole: bool) -> TestView:
    """A test and its answer; what may be secret only where it is shown `whole`."""
    result = exchange.result
    answer: TestAnswer | None = None
    if result.is_own_answer or result.status is not None:
        answer = {
            "status": result.status,
            "headers": dict(exchange.answer_headers) if whole else None,
            "body": exchange.answer_body.decode(errors="replace") if whole else None,
            "body_bytes": exchange.answer_bytes,
        }
    return {
        "ok": result.verdict is Verdict.DONE,
        "detail": result.detail,
        "duration_ms": result.duration_ms,
        "request": {
            "method": "POST" if exchange.headers else "INVOKE",
            "url": exchange.url if whole or not exchange.headers else without_path(exchange.url),
            "headers": dict(exchange.headers),
            "body": exchange.body.decode(),
        },
        "answer": answer,
    }
