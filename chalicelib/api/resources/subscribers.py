"""Push consumers: their latest attempts, and a test."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict

from msgspec import Meta, Struct

from ...domain import limits as lim
from ...domain import redact, strict_json
from ...domain.call_result import Exchange, Verdict
from ...domain.errors import ChangedMeanwhile, Conflict, Refused
from ...domain.message import Draft
from ...domain.topic import ConsumerKind, ConsumerState, Scope
from .. import lists, parse
from ..calls import ANY, CONSUMER, READ, Context, Response, call
from ..fields import Count, HeaderName, HeaderValue, Key, Tag, Time, one_of, shown, without_path
from .consumers import check_transform
from .message_views import Answer, Outcome, answer_view

if TYPE_CHECKING:
    from ...services.inspect.attempts import PastAttempt


class AttemptView(TypedDict):
    """One attempt, with the place of its message."""

    at: Time
    shard: Count
    offset: Count
    attempt: Count
    outcome: Outcome
    duration_ms: Count
    detail: str | None
    answer: NotRequired[Answer]


class AttemptsView(TypedDict):
    """The latest attempts at a consumer, the newest first, and how long they took (null: none has ended).
    `complete`: there are no others. Only the end of each shard's log is read, of 16 shards at most: for a retry of an
    older message see that message's trace."""

    items: list[AttemptView]
    p50_ms: Count | None
    p95_ms: Count | None
    complete: bool


class TestRequest(TypedDict):
    """The request that was sent to a URL, or the event that was sent to the function of this name, without headers. The
    values of the consumer's static headers are not shown."""

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


_ID_CHARS = 20


@call("GET", f"{CONSUMER}/attempts", scopes=ANY, query=("limit",))
def get_attempts(context: Context) -> Response[AttemptsView]:
    """The latest attempts at a consumer, and how long they took."""
    from ...services.inspect.attempts import latest_attempts
    from ...services.inspect.lookup import MOST_LISTING_MS

    topic, group, consumer = context.consumer()
    limit = lists.limit(context.query)
    shards = context.deps.registry.membership(topic, group, consumer).shards
    traces, clock = context.deps.adapters.traces, context.deps.adapters.clock
    ends_ms = clock.now_ms() + MOST_LISTING_MS
    history = latest_attempts(traces, topic, group, consumer, shards, limit, lambda: clock.now_ms() < ends_ms)
    items = [_attempt(each, context.may_read) for each in history.attempts]
    own = {"p50_ms": history.percentile_ms(50), "p95_ms": history.percentile_ms(95)}
    return Response(shown(AttemptsView, None, items=items, **own, complete=history.is_whole))


class TestMessage(Struct, forbid_unknown_fields=True):
    """A message that is not produced."""

    body: Any
    keys: Annotated[list[Key], Meta(max_length=lim.MAX_KEYS)] = []
    tag: Tag | None = None
    headers: Annotated[dict[HeaderName, HeaderValue], Meta(max_length=lim.MAX_HEADERS)] = {}


class TestBody(Struct, forbid_unknown_fields=True):
    """A test: `{}` sends a test event; `message` sends this message to a URL, as the consumer would get it. `dry_run`
    sends nothing and shows what would be sent; so does another `transform` than the consumer's."""

    message: TestMessage | None = None
    dry_run: bool = False
    transform: Annotated[str, Meta(min_length=1)] | None = None


@call("POST", f"{CONSUMER}/test", scopes=READ, body=TestBody)
def test_consumer(context: Context) -> Response[TestView]:
    """Send a test event: to a URL signed (`ce-type: headrace.test`), to a function a batch without messages.

    The test does not count as a message or an attempt. The response has the request and the answer received within ten
    seconds. With `dry_run` nothing is sent, and the request is what would be sent of the `message`."""
    body: TestBody = context.body
    topic, group, consumer = context.consumer(consistent=True)
    if not consumer.is_called:
        words = f"Consumer {consumer.name!r} pulls: only who is called can be tested."
        raise Refused("TEST_NEEDS_URL", words)
    is_preview = body.dry_run or body.transform is not None
    if (is_preview or body.message) and consumer.kind != ConsumerKind.URL:
        raise Refused("URL_NEEDED", "Give a message for a consumer with a url only.")
    draft = _draft(body.message or TestMessage(None)) if is_preview or body.message else None
    is_admin = context.caller is not None and Scope.ADMIN in context.caller.scopes
    if is_preview and draft:
        return Response(test_view(_preview(context, body, draft), whole=is_admin))
    if consumer.state == ConsumerState.PENDING:
        words = f"The owner of the URL has not agreed yet to be called: {consumer.why}."
        raise Conflict("CONSUMER_PENDING", words)
    id = f"test-{context.deps.adapters.random.id(_ID_CHARS)}"
    exchange = context.deps.outbound.ping(topic, group, consumer, id, draft)
    if exchange is None:
        words = "The consumer was changed meanwhile; look before you try again."
        raise ChangedMeanwhile("CHANGED_MEANWHILE", words)
    return Response(test_view(exchange, whole=is_admin))


def _draft(message: TestMessage) -> Draft:
    parse.check_headers(message.headers)
    body, keys = strict_json.dump(message.body), tuple(message.keys)
    return Draft(body, keys=keys, tag=message.tag, headers=message.headers)


def _preview(context: Context, body: TestBody, draft: Draft) -> Exchange:
    from ...delivery.sender import preview
    from ...services.push.outbound import batch_of_one

    topic, group, consumer = context.consumer()
    if body.transform is not None:
        check_transform(body.transform)
        consumer = replace(consumer, transform=body.transform)
    if topic.redact:
        draft = replace(draft, body=redact.masked(draft, topic.redact))
    return preview(consumer, batch_of_one(topic, group, "preview", draft, context.now_ms))


def _attempt(each: "PastAttempt", with_answer: bool) -> AttemptView:
    answer = {"answer": answer_view(each.answer)} if with_answer and each.answer else {}
    return shown(AttemptView, each, detail=each.detail or None, **answer)


def test_view(exchange: Exchange, *, whole: bool) -> TestView:
    """A test and its answer; what may be secret only where it is shown `whole`."""
    result, is_url = exchange.result, "://" in exchange.url
    answer: TestAnswer | None = None
    if result.is_own_answer or result.status is not None:
        answer = {
            "status": result.status,
            "headers": dict(exchange.answer_headers) if whole else None,
            "body": exchange.answer_body.decode(errors="replace") if whole else None,
            "body_bytes": exchange.answer_bytes,
        }
    request: TestRequest = {
        "method": "POST" if is_url else "INVOKE",
        "url": exchange.url if whole or not is_url else without_path(exchange.url),
        "headers": dict(exchange.headers),
        "body": exchange.body.decode(),
    }
    return shown(TestView, result, ok=result.verdict is Verdict.DONE, request=request, answer=answer)
