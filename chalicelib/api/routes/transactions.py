"""Transactions: prepared, committed or rolled back, seen."""

from __future__ import annotations

import json

import msgspec

from ...delivery.webhooks import format_secret
from ...domain.errors import Forbidden, HeadraceError, Refused
from ...domain.message import Draft
from ...domain.transaction import Transaction, TransactionState
from .. import parse, render, tracing
from ..http import Context, Response, call, invalid
from ..requests import NoBody, TransactionBody

_TRANSACTION = "/v1/transactions/{id}"
_ROLES = ("produce", "admin")


class _JsonText(msgspec.Struct):
    """The `message` of a transaction as JSON text."""

    message: msgspec.Raw


@call("POST", "/v1/topics/{topic}/transactions", scopes=("produce",), body=TransactionBody)
def prepare(context: Context, topic: str) -> Response:
    """Prepare a message: nobody sees it before the commit. 200 for a repeated dedup_id."""
    found, body, deps = context.deps.catalog.topic(topic), context.body, context.deps
    draft = _draft(context)
    if body.check_url is not None and (refusal := deps.sender.refusal("url", body.check_url)):
        raise Refused("TARGET_REFUSED", f"This check_url {refusal}.")
    from ...services.produce.transactions import Checks

    checks = Checks(body.check_url, body.check_after_seconds)
    floats = bool(body.message.delay_seconds)
    admitted = deps.intake.admit(found, tracing.joined(draft, context.headers))
    transaction, created = deps.transactor.prepare(found, admitted, checks, floats=floats, by=context.by)
    secret = format_secret(deps.transactor.secret(found))
    shown = render.transaction(transaction) | {"check_secret": secret, "duplicate": not created}
    return Response(shown, 201 if created else 200)


def _draft(context: Context) -> Draft:
    text = bytes(msgspec.json.decode(context.raw, type=_JsonText).message)
    try:
        return parse.draft(context.body.message, context.deps.adapters.clock.now_ms(), text)
    except HeadraceError as error:
        raise parse.item_error(error, "message") from None


@call("POST", f"{_TRANSACTION}/commit", scopes=_ROLES, body=NoBody)
def commit(context: Context, id: str) -> Response:
    """Commit: the message enters its topic, or waits there for its time. Repeating it is harmless."""
    return _decide(context, id, TransactionState.COMMITTED)


@call("POST", f"{_TRANSACTION}/rollback", scopes=_ROLES, body=NoBody)
def roll_back(context: Context, id: str) -> Response:
    """Roll back: nobody will ever see the message. Repeating it is harmless."""
    return _decide(context, id, TransactionState.ROLLED_BACK)


def _decide(context: Context, id: str, wanted: TransactionState) -> Response:
    decided = context.deps.transactor.decide(_find(context, id), wanted, by=context.by)
    return Response(render.transaction(decided))


@call("GET", _TRANSACTION, scopes=_ROLES)
def get_transaction(context: Context, id: str) -> Response:
    """A transaction: its state, its checks, and where its message went."""
    return Response(render.transaction(_find(context, id)))


def _find(context: Context, id: str) -> Transaction:
    """The transaction, if the caller may use its topic."""
    found = context.deps.transactor.find(id)
    if context.caller and not context.caller.may_use(found.topic):
        raise Forbidden("TOPIC_FORBIDDEN", "The token is limited to other topics.")
    return found


@call("GET", "/v1/topics/{topic}/transactions", scopes=_ROLES, query=("state", "limit", "page_token"))
def list_transactions(context: Context, topic: str) -> Response:
    """Transactions of a state (PREPARED unless another is given), by time of preparation."""
    found = context.deps.catalog.topic(topic)
    state = context.query.get("state", TransactionState.PREPARED)
    if state not in set(TransactionState):
        raise invalid("state", f"must be one of {', '.join(TransactionState)}")
    purpose = "transactions:" + json.dumps([topic, state])
    after, limit = parse.page_start(context, purpose), parse.limit(context.query)
    held = context.deps.transactor.listed(found, TransactionState(state), after, limit)
    following = held[-1].mark if len(held) == limit else None
    return Response(parse.page(context, purpose, [render.transaction(t) for t in held], following))
