"""Topics: created on purpose, changed, looked at, deleted."""

from __future__ import annotations

from ...domain.errors import Malformed
from ...domain.topic import DEFAULT_RETRY
from .. import parse, render
from ..http import ANY, Context, Response, call
from ..requests import TopicBody


@call("PUT", "/v1/topics/{topic}", scopes=("admin",), body=TopicBody)
def put_topic(context: Context, topic: str) -> Response:
    """Create a topic, or change the settings that are given."""
    fields = parse.settings(context.body)
    if "retry" in fields:
        old = context.deps.adapters.control.topic(topic)
        fields["retry"] = parse.retry(context.body.retry, old.retry if old else DEFAULT_RETRY)
    made, created = context.deps.admin.put_topic(topic, fields)
    return Response(render.topic(made), 201 if created else 200)


@call("GET", "/v1/topics/{topic}", scopes=ANY)
def get_topic(context: Context, topic: str) -> Response:
    """A topic's settings, and what is in it."""
    found = context.deps.catalog.topic(topic)
    (stats,) = context.deps.lookup.stats([found])
    return Response({**render.topic(found), "stats": render.stats(stats)})


@call("GET", "/v1/topics", scopes=ANY, query=("limit", "page_token"))
def list_topics(context: Context) -> Response:
    """Topics by name, those the token may use."""
    counted, following = parse.counted_topics(context, "topics")
    items = [{**render.topic(topic), "stats": render.stats(each)} for topic, each in counted]
    return Response(parse.page(context, "topics", items, following))


@call("DELETE", "/v1/topics/{topic}", scopes=("admin",), query=("confirm",))
def delete_topic(context: Context, topic: str) -> Response:
    """Delete a topic with its groups; `confirm` must repeat its name.

    The answer takes some three seconds: behind it, nobody meets the topic any more."""
    found = context.deps.admin.topic_to_delete(topic)
    if context.query.get("confirm") != topic:
        raise Malformed("CONFIRM_MISSING", f"Deleting a topic needs ?confirm={topic} in the URL.")
    context.deps.admin.delete_topic(found)
    return Response(status=204)
