"""Seeing messages: one by id, lists with filters."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...domain.errors import Conflict, Refused
from ...domain.limits import MAX_KEY_CHARS
from ...domain.message import Message
from ...domain.topic import Topic
from ...domain.transaction import Transaction
from ...services.bodies import with_body
from .. import parse, render
from ..http import Answer, Context, call, check_name, invalid
from ..requests import AmendBody

if TYPE_CHECKING:
    from ...services.delayed import Waiting
    from ...services.lookup import Filters

_ROLES = ("consume", "admin")
_CHANGES = ("produce", "admin")
_DELAYED = "DELAYED"
_STATUSES = ("NEW", "RUNNING", "SUCCESS", "RETRYING", "DEAD", "CANCELLED", _DELAYED)
_FILTERS = ("group", "status", "key", "tag", "shard", "from", "to", "limit", "page_token")


@call("GET", "/v1/topics/{topic}/messages/{id}", scopes=_ROLES)
def get_message(context: Context, topic: str, id: str) -> Answer:
    """Everything known about a message, with its status per group."""
    found = context.deps.catalog.topic(topic)
    message = context.deps.lookup.find(found, id)
    if isinstance(message, Message):
        return _in_log(context, found, message)
    if isinstance(message, Transaction):
        whole = with_body(context.deps.adapters.blobs, message.message)
        return Answer(render.to_json(render.prepared(topic, message, whole)))
    return _waiting(context, topic, message)


def _in_log(context: Context, topic: Topic, message: Message) -> Answer:
    message = with_body(context.deps.adapters.blobs, message)
    statuses = context.deps.lookup.deliveries(topic, message)
    return Answer(render.to_json(render.message(topic.name, message, statuses)))


def _waiting(context: Context, topic: str, waiting: Waiting) -> Answer:
    return Answer(render.to_json(_shown(context, topic, waiting)))


def _shown(context: Context, topic: str, waiting: Waiting) -> dict[str, Any]:
    message = with_body(context.deps.adapters.blobs, waiting.message)
    timer = replace(waiting.timer, draft=message.draft)
    return render.waiting(topic, replace(waiting, timer=timer))


@call("PATCH", "/v1/topics/{topic}/messages/{id}", scopes=_CHANGES, body=AmendBody)
def amend_message(context: Context, topic: str, id: str) -> Answer:
    """Change the body, headers or retries of a message that no group has claimed; while it waits, its time too."""
    found = context.deps.catalog.topic(topic)
    changes = parse.changes(context.body, context.raw, context.deps.adapters.clock.now_ms())
    message = context.deps.lookup.find(found, id)
    if isinstance(message, Message):
        return _in_log(context, found, context.deps.amender.amend(found, message, changes))
    if isinstance(message, Transaction):
        raise _in_transaction()
    return _waiting(context, topic, context.deps.delayed.amend(found, message, changes))


@call("DELETE", "/v1/topics/{topic}/messages/{id}", scopes=_CHANGES)
def cancel_message(context: Context, topic: str, id: str) -> Answer:
    """Take a message back that no group has claimed."""
    found = context.deps.catalog.topic(topic)
    message = context.deps.lookup.find(found, id)
    if isinstance(message, Message):
        context.deps.amender.cancel(found, message)
    elif isinstance(message, Transaction):
        raise _in_transaction()
    else:
        context.deps.delayed.cancel(found, message)
    return Answer(status=204)


def _in_transaction() -> Conflict:
    return Conflict("IN_TRANSACTION", "The message is in a transaction: commit it or roll it back.")


@call("GET", "/v1/topics/{topic}/messages/{id}/trace", scopes=_ROLES)
def get_trace(context: Context, topic: str, id: str) -> Answer:
    """A message's path: accepted, each attempt with who made it, burials, redrives; in order of time."""
    found = context.deps.catalog.topic(topic)
    message, tracer = context.deps.lookup.find(found, id), context.deps.tracer
    path = tracer.path(found, message) if isinstance(message, Message) else tracer.before_log(message)
    return Answer({"events": [render.event(e) for e in path]})


@call("GET", "/v1/topics/{topic}/messages", scopes=_ROLES, query=_FILTERS)
def list_messages(context: Context, topic: str) -> Answer:
    """Messages, newest first; those with status DELAYED soonest first.

    A page may be short or empty while `next_page_token` says there is more."""
    found = context.deps.catalog.topic(topic)
    query = context.query
    filters = _filters(context, topic)
    if filters.shard is not None and filters.shard >= found.shards:
        raise Refused("NO_SUCH_SHARD", f"Topic {topic!r} has shards 0 to {found.shards - 1}.")
    purpose = "messages:" + json.dumps([topic, {f: query[f] for f in _FILTERS[:-2] if f in query}])
    told = parse.page_start(context, purpose)
    if filters.status == _DELAYED:
        return _delayed(context, found, filters, purpose, told)
    page, following = _newest_first(context, found, filters, told)
    blobs = context.deps.adapters.blobs
    items = [
        render.message(topic, with_body(blobs, m), context.deps.lookup.deliveries(found, m)) for m in page
    ]
    return Answer(render.to_json(parse.page(context, purpose, items, following)))


def _delayed(context: Context, topic: Topic, filters: Filters, purpose: str, told: str | None) -> Answer:
    """A page of what waits for its time; `from` and `to` are then times of delivery."""
    from ...services.delayed_list import soonest_first

    timers, limit = context.deps.adapters.timers, parse.limit(context.query)
    page, following = soonest_first(timers, topic, filters, _key(context), limit, told)
    items = [_shown(context, topic.name, waiting) for waiting in page]
    return Answer(render.to_json(parse.page(context, purpose, items, following)))


def _key(context: Context) -> str | None:
    key = context.query.get("key")
    if key is not None and not 1 <= len(key) <= MAX_KEY_CHARS:
        raise invalid("key", f"must have 1 to {MAX_KEY_CHARS} characters")
    return key


def _newest_first(
    context: Context, topic: Topic, filters: Filters, told: Any
) -> tuple[list[Message], dict[int, int] | str | None]:
    """A page by key, or of the whole topic, from where the page token told."""
    limit, key = parse.limit(context.query), _key(context)
    if key is not None:
        return context.deps.key_lookup.newest_first(topic, key, filters, limit, told)
    starts = {int(shard): start for shard, start in told.items()} if told is not None else None
    return context.deps.lookup.newest_first(topic, filters, limit, starts)


def _filters(context: Context, topic: str) -> Filters:
    from ...services.lookup import Filters

    query = context.query
    status = query.get("status")
    if status is not None and status not in _STATUSES:
        raise invalid("status", f"must be one of {', '.join(_STATUSES)}")
    if status == _DELAYED and "group" in query:
        raise invalid("status", "DELAYED goes without `group`: nobody is owed the message yet")
    group = None
    if "group" in query:
        check_name("group", query["group"])
        group = context.deps.catalog.group(context.deps.catalog.topic(topic), query["group"])
    return Filters(
        group=group,
        status=status,
        tag=query.get("tag"),
        shard=parse.shard(query),
        from_ms=parse.time_ms(query["from"], "from") if "from" in query else None,
        to_ms=parse.time_ms(query["to"], "to") if "to" in query else None,
    )
