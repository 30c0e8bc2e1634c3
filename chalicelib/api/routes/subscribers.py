"""Push consumers: their latest attempts, and a test."""

from __future__ import annotations

from ...domain.errors import ChangedMeanwhile, Conflict, Refused
from ...domain.topic import Consumer, ConsumerState, Group, Scope, Topic
from .. import list_pages
from ..calls import ANY, Context, Response, call
from ..requests import NoBody
from ..responses import subscribers
from ..responses.subscribers import AttemptsView, TestView

_CONSUMER = "/v1/topics/{topic}/groups/{group}/consumers/{consumer}"
_ID_CHARS = 20


@call("GET", f"{_CONSUMER}/attempts", scopes=ANY, query=("limit",))
def get_attempts(context: Context) -> Response[AttemptsView]:
    """The latest attempts at a consumer, and how long they took."""
    from ...services.inspect.attempts import latest
    from ...services.inspect.lookup import MOST_LISTING_MS

    topic, group, consumer = _find(context)
    limit = list_pages.limit(context.query)
    shards = context.deps.registry.membership(topic, group, consumer).shards
    traces, clock = context.deps.adapters.traces, context.deps.adapters.clock
    ends_ms = clock.now_ms() + MOST_LISTING_MS
    history = latest(traces, topic, group, consumer, shards, limit, lambda: clock.now_ms() < ends_ms)
    return Response(subscribers.attempts(history))


@call("POST", f"{_CONSUMER}/test", scopes=(Scope.CONSUME, Scope.ADMIN), body=NoBody)
def test_consumer(context: Context) -> Response[TestView]:
    """Send a test event: to a URL signed (`ce-type: headrace.test`), to a function a batch without messages.

    The test does not count as a message or an attempt. The response has the request and the answer received within ten
    seconds."""
    topic, group, consumer = _find(context, consistent=True)
    if not consumer.is_called:
        raise Refused(
            "TEST_NEEDS_URL", f"Consumer {consumer.name!r} pulls: only who is called can be tested."
        )
    if consumer.state == ConsumerState.PENDING:
        raise Conflict(
            "CONSUMER_PENDING", f"The owner of the URL has not agreed yet to be called: {consumer.why}."
        )
    id = f"test-{context.deps.adapters.random.id(_ID_CHARS)}"
    exchange = context.deps.outbound.ping(topic, group, consumer, id)
    if exchange is None:
        raise ChangedMeanwhile(
            "CHANGED_MEANWHILE", "The consumer was changed meanwhile; look before you try again."
        )
    is_admin = context.caller is not None and Scope.ADMIN in context.caller.scopes
    return Response(subscribers.test(exchange, whole=is_admin))


def _find(context: Context, *, consistent: bool = False) -> tuple[Topic, Group, Consumer]:
    topic, group = context.group(consistent=consistent)
    return topic, group, context.deps.catalog.consumer(topic, group, context.params["consumer"])
