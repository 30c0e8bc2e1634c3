"""One attempt at one consumer: makes the request, and judges the answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import partial
from urllib.parse import urljoin

from ..domain import strict_json
from ..domain.call_result import MOST_SHOWN_BYTES, Attempt, CallResult, Exchange, PushBatch, Verdict
from ..domain.limits import MAX_RETRY_SECONDS, NEVER_RETRY_STATUS
from ..domain.message import header_spelling
from ..domain.topic import Callback, Consumer, ConsumerKind
from ..domain.transaction import CheckAnswer, Transaction
from ..ports.world import Clock
from . import answers, checks, events, function_batch, handshake, transform, webhooks
from .connections import Deadline, Monotonic
from .egress import Egress, Reply, Unreached
from .functions import FunctionFailed, Functions, Throttled

_SLOW_DOWN = {429, 503}  # the subscriber, or a proxy before it, asks for time
_GATEWAY_STATUSES = {502, 504}  # a proxy before the subscriber got no proper answer from it
_GONE = 410
_REFUSED_SECONDS = 300.0  # so long a host that does not agree to callbacks is not asked again


@dataclass(kw_only=True, eq=False)
class Sender:
    """ports.Sender: by HTTP to URLs, by invocation to functions. `origin` is our host name in handshakes,
    `may_ask` bounds those. `real_clock` is the one that subscribers share; `clock` may be shifted on a local
    server and in tests."""

    egress: Egress
    functions: Functions
    clock: Clock
    real_clock: Clock
    monotonic: Monotonic
    origin: str
    never_retry_status: int = NEVER_RETRY_STATUS
    may_ask: handshake.MayAsk = lambda host: True

    def __post_init__(self) -> None:
        self._consents = handshake.Consents(self.monotonic)

    def send(self, consumer: Consumer, push_batch: PushBatch, seconds: float) -> tuple[CallResult, ...]:
        """Send a push batch in one request that takes at most so many seconds. One result for each of its messages."""
        if consumer.kind == ConsumerKind.FUNCTION:
            return self._call(consumer, push_batch, seconds)
        contents = transform.applied(consumer.transform, push_batch)
        attempts = tuple(each for each in contents if isinstance(each, Attempt))
        if not attempts:
            return tuple(each for each in contents if isinstance(each, CallResult))
        result = self._post(consumer, replace(push_batch, attempts=attempts), seconds)
        return tuple(each if isinstance(each, CallResult) else result for each in contents)

    def refusal(self, kind: str, target: str) -> str | None:
        """Why a consumer of this kind may not have this target, to follow it in a sentence; None: it may."""
        judge = self.functions if kind == ConsumerKind.FUNCTION else self.egress
        return judge.refusal(target)

    def greet(self, url: str) -> CallResult:
        """Ask a URL's owner for consent (the handshake of CloudEvents' webhooks)."""
        return handshake.greet(self.egress, url, self.origin, self.may_ask)

    def ping(self, consumer: Consumer, id: str, seconds: float, push_batch: PushBatch | None) -> Exchange:
        """Send a consumer a test event, or this message, in one request, and show both sides of it."""
        if consumer.kind == ConsumerKind.FUNCTION:
            return self._ping_function(consumer, seconds)
        now_ms = self.real_clock.now_ms()
        post = _previewed(consumer, push_batch) if push_batch else events.test_post(consumer, id, now_ms)
        if isinstance(post, CallResult):
            return Exchange(consumer.target, _shown({}, consumer), b"", post)
        secrets = live_secrets(consumer, self.clock.now_ms())
        signature, answer = self._request(consumer, post, secrets, seconds)
        shown, result = _shown(post.headers, consumer) | signature, self._judge(consumer, answer)
        if isinstance(answer, Unreached):
            return Exchange(consumer.target, shown, post.body, result)
        values, body = list(static_headers(consumer).values()), answer.body
        if values:
            body = answers.without(body.decode(errors="replace"), values).encode()
        answer_headers = {name: answers.without(value, values) for name, value in answer.headers.items()}
        cut, size = body[:MOST_SHOWN_BYTES], len(body)
        return Exchange(consumer.target, shown, post.body, result, answer_headers, cut, size)

    def ask(self, transaction: Transaction, secrets: Sequence[bytes], seconds: float) -> CheckAnswer:
        """Ask a producer what became of its transaction. Asks for consent first, once an hour for each URL."""
        url, deadline = transaction.check_url or "", Deadline(self.monotonic, seconds)
        greeting = self._consent(url, seconds)
        if greeting.verdict is not Verdict.DONE:
            return CheckAnswer(None, greeting.detail)
        body = checks.question(transaction)
        id = f"{transaction.id}.{transaction.check_ms}"
        signature = webhooks.sign(secrets, id, self.real_clock.now_ms() // 1000, body)
        headers = {"Content-Type": "application/json", **signature}
        return checks.read(self.egress.call("POST", url, headers, body, _left(deadline, seconds)))

    def _consent(self, url: str, seconds: float, refused_seconds: float = 0) -> CallResult:
        """The consent of a URL's owner, asked for once an hour."""
        ask = partial(handshake.greet, self.egress, url, self.origin, self.may_ask, seconds)
        return self._consents.answer(url, ask, refused_seconds)

    def _post(self, consumer: Consumer, push_batch: PushBatch, seconds: float) -> CallResult:
        secrets = live_secrets(consumer, self.clock.now_ms())
        if not secrets:
            return CallResult(Verdict.NOT_ATTEMPTED, "the consumer has no secret to sign with")
        if isinstance(consumer, Callback):
            # The host is asked, not the producer's URL: neither its path nor its spelling decides anything.
            root = urljoin(consumer.target.lower(), "/").replace(":443/", "/")
            deadline = Deadline(self.monotonic, seconds)
            greeting = self._consent(root, min(seconds, handshake.SECONDS), _REFUSED_SECONDS)
            if greeting.verdict is not Verdict.DONE:
                return replace(greeting, status=None)
            seconds = _left(deadline, seconds)
        signature, answer = self._request(consumer, events.post(push_batch), secrets, seconds)
        result = self._judge(consumer, answer)
        if isinstance(answer, Unreached) or result.verdict is Verdict.DONE:
            return result
        signatures = signature["webhook-signature"].split(" ")
        hidden = [*map(webhooks.format_secret, secrets), *signatures, *static_headers(consumer).values()]
        content_type = answer.headers.get("content-type", "")
        return replace(result, answer=answers.kept(answer.status, content_type, answer.body, hidden))

    def _request(
        self, consumer: Consumer, post: events.Post, secrets: Sequence[bytes], seconds: float
    ) -> tuple[dict[str, str], Reply | Unreached]:
        """Sign a request and send it; the signature's headers, and the answer."""
        signature = webhooks.sign(secrets, post.id, self.real_clock.now_ms() // 1000, post.body)
        headers = _with_static(post.headers, static_headers(consumer)) | signature
        return signature, self.egress.call("POST", consumer.target, headers, post.body, seconds)

    def _judge(self, consumer: Consumer, answer: Reply | Unreached) -> CallResult:
        if isinstance(answer, Unreached):
            return CallResult(Verdict.FAILED, answer.detail, duration_ms=answer.duration_ms)
        status = answer.status
        if status in _SLOW_DOWN:
            wait_ms = asked_wait_ms(answer.headers.get("retry-after"), self.real_clock.now_ms())
            ms = answer.duration_ms
            return CallResult(Verdict.FAILED, f"HTTP {status}", status, wait_ms, ms, is_own_answer=False)
        if 200 <= status < 300:
            verdict = Verdict.DONE
        elif status == _GONE:
            verdict = Verdict.REFUSED if isinstance(consumer, Callback) else Verdict.GONE
        else:
            is_final = status in (self.never_retry_status, *consumer.reject_statuses)
            verdict = Verdict.REFUSED if is_final else Verdict.FAILED
        is_own, ms = status not in _GATEWAY_STATUSES, answer.duration_ms
        return CallResult(verdict, f"HTTP {status}", status, duration_ms=ms, is_own_answer=is_own)

    def _call(self, consumer: Consumer, push_batch: PushBatch, seconds: float) -> tuple[CallResult, ...]:
        deadline = Deadline(self.monotonic, seconds)
        answer = self.functions.call(consumer.target, function_batch.event(push_batch), seconds)
        ms = deadline.spent_ms()
        outcome = _batch_result(consumer, answer, [attempt.message.id for attempt in push_batch.attempts], ms)
        if isinstance(outcome, CallResult):
            return (outcome,) * len(push_batch.attempts)
        success = CallResult(Verdict.DONE, duration_ms=ms, is_own_answer=True)
        words = "the function reported it as failed"
        bad = CallResult(Verdict.FAILED, words, duration_ms=ms, is_own_answer=True)
        return tuple(bad if attempt.message.id in outcome else success for attempt in push_batch.attempts)

    def _ping_function(self, consumer: Consumer, seconds: float) -> Exchange:
        deadline = Deadline(self.monotonic, seconds)
        event = events.test_event(consumer, self.real_clock.now_ms())
        answer = self.functions.call(consumer.target, event, seconds)
        ms = deadline.spent_ms()
        result = _batch_result(consumer, answer, (), ms)
        if not isinstance(result, CallResult):
            result = CallResult(Verdict.DONE, "it answered", duration_ms=ms, is_own_answer=True)
        said = answer if isinstance(answer, bytes) else b""
        return Exchange(consumer.target, {}, event, result, {}, said[:MOST_SHOWN_BYTES], len(said))


def _left(deadline: Deadline, seconds: float) -> float:
    """What is left of the seconds, as it is shown where no answer comes."""
    return max(0.1, round(seconds - deadline.spent_ms() / 1000, 1))


def preview(consumer: Consumer, push_batch: PushBatch) -> Exchange:
    """What would be sent of a message to a URL, but for the signature. Nothing is sent."""
    post = _previewed(consumer, push_batch)
    if isinstance(post, CallResult):
        return Exchange(consumer.target, _shown({}, consumer), b"", post)
    result = CallResult(Verdict.DONE, "not sent")
    return Exchange(consumer.target, _shown(post.headers, consumer), post.body, result)


def _previewed(consumer: Consumer, push_batch: PushBatch) -> events.Post | CallResult:
    (content,) = transform.applied(consumer.transform, push_batch)
    if isinstance(content, CallResult):
        return content
    return events.post(replace(push_batch, attempts=(content,)))


def static_headers(consumer: Consumer) -> dict[str, str]:
    """The headers of a consumer whose secrets are decrypted, that go with each request to its URL."""
    texts = (bytes.fromhex(each.hex) for each in consumer.headers)
    return {name: value for raw in texts for name, value in strict_json.decoded(raw, dict[str, str]).items()}


def _with_static(headers: Mapping[str, str], static: Mapping[str, str]) -> dict[str, str]:
    """A request's headers with the consumer's own, which take the place of a message's."""
    spellings = set(map(header_spelling, static))
    others = {name: value for name, value in headers.items() if header_spelling(name) not in spellings}
    return {**others, **static}


def _shown(headers: Mapping[str, str], consumer: Consumer) -> dict[str, str]:
    """A request's headers as people may see them: of the consumer's own only the names."""
    return _with_static(headers, dict.fromkeys(consumer.header_names, answers.HIDDEN))


def _batch_result(
    consumer: Consumer, answer: bytes | FunctionFailed | Throttled, ids: Collection[str], ms: int
) -> CallResult | frozenset[str]:
    """What a function made of a batch: the ids that failed, or the outcome of all."""
    if isinstance(answer, Throttled):
        return CallResult(Verdict.NOT_ATTEMPTED, "the function is throttled", duration_ms=ms)
    if isinstance(answer, FunctionFailed):
        busy_ms = max(0, consumer.busy_seconds * 1000 - ms) if answer.may_run else 0
        said = answers.kept(None, "application/json", answer.said, ()) if answer.said else None
        failure = CallResult(Verdict.FAILED, answer.detail, duration_ms=ms, is_own_answer=answer.ran)
        return replace(failure, busy_ms=busy_ms, answer=said)
    failed_ids = function_batch.failed_ids(ids, answer)
    if failed_ids is not None:
        return failed_ids
    words = "the function's answer is malformed"
    return CallResult(Verdict.FAILED, words, duration_ms=ms, is_own_answer=True)


def live_secrets(consumer: Consumer, now_ms: int) -> list[bytes]:
    """The (decrypted) secrets that sign now: the present one, and old ones until their end."""
    return [bytes.fromhex(secret.hex) for secret in consumer.secrets if secret.is_live(now_ms)]


_MAX_WAIT_MS = MAX_RETRY_SECONDS * 1000


def asked_wait_ms(text: str | None, now_ms: int) -> int | None:
    """The wait that a `Retry-After` asks for, by its seconds or its date (in UTC if it names no zone): 0 for a past
    date, 30 days at most. None where there is none, and for nonsense."""
    text = (text or "").strip()
    if text.isascii() and text.isdigit():
        wait_ms = float(text) * 1000
    else:
        try:
            date = parsedate_to_datetime(text)
            wait_ms = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() * 1000 - now_ms
        except (ValueError, OverflowError):
            return None
    return round(min(max(wait_ms, 0), _MAX_WAIT_MS))
