"""Consumers of a group: registration, heartbeat, rank."""

from __future__ import annotations

from ...domain.errors import Refused
from .. import parse, render
from ..http import ANY, Answer, Context, call
from ..requests import ConsumerBody, NoBody

_CONSUMER = "/v1/topics/{topic}/groups/{group}/consumers/{consumer}"
_ROLES = ("consume", "admin")


@call("PUT", _CONSUMER, scopes=_ROLES, body=ConsumerBody)
def put_consumer(context: Context, topic: str, group: str, consumer: str) -> Answer:
    """Register a consumer, or renew its registration; in a broadcast its messages begin now."""
    if context.body.url is not None or context.body.function is not None or context.body.secret is not None:
        raise Refused(
            "PUSH_UNAVAILABLE", "Consumers that are called are not available yet; register with {} and pull."
        )
    found = context.deps.catalog.topic(topic)
    member, created = context.deps.admin.register(found, context.deps.catalog.group(found, group), consumer)
    return Answer(render.member(member), 201 if created else 200)


@call("GET", _CONSUMER, scopes=ANY)
def get_consumer(context: Context, topic: str, group: str, consumer: str) -> Answer:
    """A consumer, its rank among those online, and its shards."""
    found = context.deps.catalog.topic(topic)
    wanted = context.deps.catalog.group(found, group)
    member = context.deps.admin.membership(
        found, wanted, context.deps.catalog.consumer(found, wanted, consumer)
    )
    return Answer(render.member(member))


@call("GET", "/v1/topics/{topic}/groups/{group}/consumers", scopes=ANY, query=("limit", "page_token"))
def list_consumers(context: Context, topic: str, group: str) -> Answer:
    """The group's consumers, by name."""
    found = context.deps.catalog.topic(topic)
    wanted = context.deps.catalog.group(found, group)
    purpose = f"consumers:{topic}:{group}"
    limit = parse.limit(context.query)
    after = parse.page_start(context, purpose) or ""
    left = [c for c in context.deps.catalog.consumers(found, wanted) if c.name > after]
    items = [render.member(context.deps.admin.membership(found, wanted, c)) for c in left[:limit]]
    return Answer(parse.page(context, purpose, items, left[limit - 1].name if len(left) > limit else None))


@call("POST", f"{_CONSUMER}/heartbeat", scopes=_ROLES, body=NoBody)
def heartbeat(context: Context, topic: str, group: str, consumer: str) -> Answer:
    """Stay online; the answer tells rank, total and shards."""
    found = context.deps.catalog.topic(topic)
    wanted = context.deps.catalog.group(found, group)
    seen = context.deps.catalog.consumer(found, wanted, consumer)
    return Answer(render.member(context.deps.admin.heartbeat(found, wanted, seen)))


@call("DELETE", _CONSUMER, scopes=_ROLES)
def delete_consumer(context: Context, topic: str, group: str, consumer: str) -> Answer:
    """Leave the group; its shards go to the others at once."""
    found = context.deps.catalog.topic(topic)
    wanted = context.deps.catalog.group(found, group)
    context.deps.admin.unregister(found, wanted, context.deps.catalog.consumer(found, wanted, consumer))
    return Answer(status=204)
