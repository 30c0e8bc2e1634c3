"""Seeing messages: one by id, lists with filters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...domain.errors import Conflict, Refused
from ...domain.limits import MAX_KEY_CHARS
from ...domain.message import Message
from ...domain.topic import Topic
from ...domain.transaction import DECIDED, Transaction, TransactionState
from ...services.core.bodies import with_body
from .. import parse, render
from ..http import Context, Response, call, check_name, invalid
from ..requests import AmendBody

if TYPE_CHECKING:
    from ...services.inspect.lookup import Filters, Seen
    from ...services.inspect.statuses import Look

_ROLES = ("consume", "admin")
_CHANGES = ("produce", "admin")
_DELAYED = "DELAYED"
_PREPARED = "PREPARED"
_STATUSES = ("NEW", "RUNNING", "SUCCESS", "RETRYING", "DEAD", "CANCELLED", _DELAYED, _PREPARED)
_FILTERS = ("group", "status", "key", "tag", "shard", "from", "to", "limit", "page_token")


@call("GET", "/v1/topics/{topic}/messages/{id}", scopes=_ROLES)
def get_message(context: Context, topic: str, id: str) -> Response:
    """Everything known about a message, with its status per group."""
    found = context.deps.catalog.topic(topic)
    return Response(render.to_json(_shown(context, found, context.deps.lookup.find(found, id))))


def _shown(context: Context, topic: Topic, seen: Seen, look: Look | None = None) -> dict[str, Any]:
    """A message as it stands, wherever that is; one of several, as the same look found them."""
    blobs = context.deps.adapters.blobs
    if isinstance(seen, Message):
        look = look or context.deps.statuses.look(topic)
        return render.message(topic, with_body(blobs, seen), look.deliveries(seen))
    whole = with_body(blobs, seen.message)
    if isinstance(seen, Transaction):
        return render.prepared(topic, seen, whole)
    return render.waiting(topic, seen, whole)


@call("PATCH", "/v1/topics/{topic}/messages/{id}", scopes=_CHANGES, body=AmendBody)
def amend_message(context: Context, topic: str, id: str) -> Response:
    """Change the body, headers or retries of a message that no group has claimed; while it waits, its time too."""
    found = context.deps.catalog.topic(topic)
    changes = parse.changes(context.body, context.raw, context.deps.adapters.clock.now_ms())
    message = context.deps.lookup.find(found, id)
    if isinstance(message, Message):
        amended: Seen = context.deps.amender.amend(found, message, changes, context.by)
        return Response(render.to_json(_shown(context, found, amended)))
    if isinstance(message, Transaction):
        raise _in_transaction(message)
    waiting = context.deps.delayed.amend(found, message, changes, context.by)
    return Response(render.to_json(_shown(context, found, waiting)))


@call("DELETE", "/v1/topics/{topic}/messages/{id}", scopes=_CHANGES)
def cancel_message(context: Context, topic: str, id: str) -> Response:
    """Take a message back that no group has claimed."""
    found = context.deps.catalog.topic(topic)
    message = context.deps.lookup.find(found, id)
    if isinstance(message, Message):
        context.deps.amender.cancel(found, message, context.by)
    elif isinstance(message, Transaction):
        if message.state is not TransactionState.ROLLED_BACK:
            raise _in_transaction(message)
    else:
        context.deps.delayed.cancel(found, message, context.by)
    return Response(status=204)


def _in_transaction(held: Transaction) -> Conflict:
    if held.state is TransactionState.ROLLED_BACK:
        return Conflict("MESSAGE_CANCELLED", "The message was rolled back; publish a new one.")
    return Conflict("IN_TRANSACTION", "The message is in a transaction: commit it or roll it back.")


@call("GET", "/v1/topics/{topic}/messages/{id}/trace", scopes=_ROLES)
def get_trace(context: Context, topic: str, id: str) -> Response:
    """A message's path: what was done to it and by which token, each attempt with who made it; in order of time."""
    found = context.deps.catalog.topic(topic)
    message, tracer = context.deps.lookup.find(found, id), context.deps.tracer
    path = tracer.path(found, message) if isinstance(message, Message) else tracer.before_log(message)
    names = {by: context.deps.tokens.name(by) for by in {e.by for e in path} if by}
    return Response({"events": [render.event(e, names) for e in path]})


@call("GET", "/v1/topics/{topic}/messages/{id}/fate", scopes=_ROLES)
def get_fate(context: Context, topic: str, id: str) -> Response:
    """Where a message stands everywhere: for each group its status, and the one place in which it is."""
    from ...services.inspect.fate import is_complete

    found = context.deps.catalog.topic(topic)
    seen = context.deps.lookup.find(found, id)
    shown = {name: value for name, value in _shown(context, found, seen).items() if name != "deliveries"}
    fates = context.deps.fates.of(found, seen) if isinstance(seen, Message) else {}
    answer = {
        "message": shown,
        "groups": {name: render.fate(fate) for name, fate in fates.items()},
        "complete": shown["status"] == "CANCELLED" or is_complete(fates),
        "adds_up": all(fate.adds_up for fate in fates.values()),
    }
    return Response(render.to_json(answer))


@call("GET", "/v1/topics/{topic}/messages", scopes=_ROLES, query=_FILTERS)
def list_messages(context: Context, topic: str) -> Response:
    """Messages, newest first; those with status DELAYED soonest first, those PREPARED in the order they were.

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
    if filters.status == _PREPARED and _key(context) is None:
        return _prepared(context, found, filters, purpose, told)
    look = context.deps.statuses.look(found)
    page, following = _newest_first(context, look, filters, told)
    items = [_shown(context, found, seen, look) for seen in page]
    return Response(render.to_json(parse.page(context, purpose, items, following)))


def _delayed(context: Context, topic: Topic, filters: Filters, purpose: str, told: str | None) -> Response:
    """A page of what waits for its time; `from` and `to` are then times of delivery."""
    from ...services.inspect.delayed_list import soonest_first

    timers, limit = context.deps.adapters.timers, parse.limit(context.query)
    page, following = soonest_first(timers, topic, filters, _key(context), limit, told)
    items = [_shown(context, topic, waiting) for waiting in page]
    return Response(render.to_json(parse.page(context, purpose, items, following)))


def _prepared(context: Context, topic: Topic, filters: Filters, purpose: str, told: Any) -> Response:
    """A page of what waits for a decision; `from` and `to` are then times of preparation."""
    state, after = told or (TransactionState.PREPARED, None)
    limit, transactions = parse.limit(context.query), context.deps.adapters.transactions
    listed = transactions.listed(topic, TransactionState(state), after, limit)
    whole = (transactions.get(each.id) for each in listed)
    items = [_shown(context, topic, each) for each in whole if each and _is_prepared(each, filters)]
    following = [state, listed[-1].mark] if len(listed) == limit else None
    if following is None and state == TransactionState.PREPARED:
        following = [TransactionState.UNDECIDED, None]
    return Response(render.to_json(parse.page(context, purpose, items, following)))


def _is_prepared(transaction: Transaction, filters: Filters) -> bool:
    return (
        transaction.state not in DECIDED
        and filters.shard in (None, transaction.shard)
        and filters.tag in (None, transaction.message.draft.tag)
        and (filters.from_ms or 0) <= transaction.prepared_ms
        and (filters.to_ms is None or transaction.prepared_ms <= filters.to_ms)
    )


def _key(context: Context) -> str | None:
    key = context.query.get("key")
    if key is not None and not 1 <= len(key) <= MAX_KEY_CHARS:
        raise invalid("key", f"must have 1 to {MAX_KEY_CHARS} characters")
    return key


def _newest_first(
    context: Context, look: Look, filters: Filters, told: Any
) -> tuple[Sequence[Seen], dict[int, int] | str | None]:
    """A page by key, or of the whole topic, from where the page token told."""
    limit, key = parse.limit(context.query), _key(context)
    if key is not None:
        return context.deps.key_lookup.newest_first(look.topic, key, filters, limit, told, look)
    starts = {int(shard): start for shard, start in told.items()} if told is not None else None
    return context.deps.lookup.newest_first(look.topic, filters, limit, starts, look)


def _filters(context: Context, topic: str) -> Filters:
    from ...services.inspect.lookup import Filters

    query = context.query
    status = query.get("status")
    if status is not None and status not in _STATUSES:
        raise invalid("status", f"must be one of {', '.join(_STATUSES)}")
    if status in (_DELAYED, _PREPARED) and "group" in query:
        raise invalid("status", f"{status} goes without `group`: nobody is owed the message yet")
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
