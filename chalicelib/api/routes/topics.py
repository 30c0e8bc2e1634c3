"""Topics: create, change, read, delete."""

from __future__ import annotations

from ...domain.errors import Malformed
from ...domain.topic import Scope
from .. import list_pages, parse
from ..calls import ANY, Context, Reach, Response, call
from ..requests import TopicBody
from ..responses import as_of, due, rates, topics
from ..responses.as_of import AsOfView
from ..responses.common import Page, page
from ..responses.due import DueView
from ..responses.rates import RatesView
from ..responses.topics import TopicDetail, TopicView

_MOST_READING_MS = 8_000  # of a request: API Gateway ends one after 29 s


@call(
    "PUT",
    "/v1/topics/{topic}",
    scopes=(Scope.ADMIN,),
    body=TopicBody,
    statuses=(200, 201),
    reach=Reach.GROUPS,
)
def put_topic(context: Context) -> Response[TopicView]:
    """Create a topic, or change the settings that are given."""
    name, fields = context.params["topic"], parse.settings(context.body)
    topic, is_new = context.deps.admin.put_topic(name, fields, parse.new_retry(fields))
    if "shards" in fields and not is_new:
        context.deps.waker.wake_after_redivision(topic)
    return Response(topics.view(topic), 201 if is_new else 200)


@call("GET", "/v1/topics/{topic}", scopes=ANY)
def get_topic(context: Context) -> Response[TopicDetail]:
    """A topic's settings and counts."""
    topic = context.topic()
    stats = context.deps.counts.topic_stats(topic)
    return Response(topics.detail(topic, stats, context.may_use_group))


@call("GET", "/v1/topics/{topic}/rates", scopes=ANY, query=("window",))
def get_rates(context: Context) -> Response[RatesView]:
    """Rates of produced and settled messages, and each group's backlog, over time.

    `window` is 1h (each minute; the default), 24h (ten minutes) or 7d (hours)."""
    window = list_pages.window(context.query)
    topic, deps = context.topic(), context.deps
    buckets = deps.rate_charts.of(topic, window, deps.surveyor.reading(topic))
    return Response(rates.view(topic, window, buckets, context.caller))


@call("GET", "/v1/topics/{topic}/due", scopes=ANY, query=("from",))
def get_due(context: Context) -> Response[DueView]:
    """Count delayed messages and retries by the hour in which they are due.

    It reads the first thousand or so timers of all topics from `from` on (default: from the earliest)."""
    from ...services.inspect.delayed_list import reader
    from ...services.inspect.due_hours import due_hours, lanes_of

    query = context.query
    from_ms = parse.time_ms(query["from"], "from") if "from" in query else 0
    topic, deps = context.topic(), context.deps
    read, clock = reader(deps.adapters.timers, consistent=False), deps.adapters.clock
    lanes = lanes_of(deps.catalog, topic, context.may_use_group)
    ends_ms = clock.now_ms() + _MOST_READING_MS
    return Response(due.view(*due_hours(read, topic, lanes, from_ms, lambda: clock.now_ms() < ends_ms)))


@call("GET", "/v1/topics/{topic}/as-of", scopes=ANY, query=("at",))
def get_as_of(context: Context) -> Response[AsOfView]:
    """A topic's counts at the last full hour up to `at`.

    For each group that had tried anything: what was waiting, in flight, retried and dead. From the archive: 404
    `NOT_ARCHIVED` says who counts what is not counted yet."""
    at_ms = parse.time_ms(context.query.get("at", ""), "at")
    topic = context.topic()
    return Response(as_of.view(topic, at_ms, context.deps.past.of(topic, at_ms), context.caller))


@call("GET", "/v1/topics", scopes=ANY, query=("limit", "page_token"))
def list_topics(context: Context) -> Response[Page[TopicDetail]]:
    """List the topics that the token may use, by name."""
    pairs, next_start = list_pages.counted_topics(context, "topics")
    return Response(
        page(context, "topics", [topics.detail(*pair, context.may_use_group) for pair in pairs], next_start)
    )


@call(
    "DELETE",
    "/v1/topics/{topic}",
    scopes=(Scope.ADMIN,),
    query=("confirm",),
    statuses=(204,),
    reach=Reach.GROUPS,
)
def delete_topic(context: Context) -> Response[None]:
    """Delete a topic with its groups; `confirm` must repeat its name.

    The answer takes some three seconds; after it, the topic is gone in all processes."""
    name = context.params["topic"]
    topic = context.deps.admin.topic_to_delete(name)
    if context.query.get("confirm") != name:
        raise Malformed("CONFIRM_MISSING", f"Deleting a topic needs ?confirm={name} in the URL.")
    context.deps.admin.delete_topic(topic)
    return Response(None, 204)
