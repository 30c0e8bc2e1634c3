"""Transactions: prepare, commit, roll back, read, ask again."""

import json
from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta, Struct

from ...delivery.webhooks import format_secret
from ...domain import limits as lim
from ...domain import strict_json
from ...domain.errors import Refused
from ...domain.transaction import LISTED, Transaction, TransactionState
from ...services.produce.drafts import takes_all
from .. import lists, many, parse
from ..calls import BY_PRODUCERS, PAGED, PRODUCE, SEND, TOPIC, Context, Response, call
from ..fields import Count, Name, NoBody, Time, at, either, shown
from ..http import check_topic, invalid
from .produce import first_use, state_lookup

_CheckAfter = Annotated[int, Meta(ge=1, le=lim.MAX_CHECK_AFTER_SECONDS)]


class TransactionBody(Struct, forbid_unknown_fields=True):
    """A message to prepare, and the URL that is asked for the decision if neither commit nor rollback arrives."""

    message: parse.MessageBody
    check_url: Annotated[str, Meta(max_length=lim.MAX_URL_CHARS)] | None = None
    check_after_seconds: _CheckAfter = lim.DEFAULT_CHECK_AFTER_SECONDS


class TransactionView(TypedDict):
    """A transaction without its message. Once committed, the message is in `shard` at `offset`, or waits until
    `deliver_at`. `checks` counts the checks made so far; `last_answer` is the result of the last one."""

    transaction_id: str
    message_id: str
    topic: str
    state: TransactionState
    shard: Count | None
    offset: Count | None
    deliver_at: NotRequired[Time]
    prepared_at: Time
    decided_at: Time | None
    check_url: str | None
    check_after_seconds: Count
    checks: Count
    last_answer: str | None
    next_check_at: Time | None


class PreparedTransaction(TransactionView):
    """A transaction that was just prepared, or was before (`duplicate`). Checks are signed with `check_secret`."""

    check_secret: str
    duplicate: bool


_TRANSACTION = "/v1/transactions/{id}"


@call("POST", f"{TOPIC}/transactions", scopes=PRODUCE, body=TransactionBody, statuses=(200, 201))
def prepare(context: Context) -> Response[PreparedTransaction]:
    """Prepare a message: no consumer gets it before the commit. 200 for a repeated dedup_id."""
    body, deps = context.body, context.deps
    text = strict_json.member(context.raw, "message")
    draft = parse.draft(context, body.message, text, path="message")
    topic = context.topic_for(takes_all([draft]))
    if body.check_url is not None and (refusal := deps.sender.refusal("url", body.check_url)):
        raise Refused("TARGET_REFUSED", f"This check_url {refusal}.")
    from ...services.produce.transactions import Checks

    checks = Checks(body.check_url, body.check_after_seconds)
    # A delay counts from the commit; `deliver_at` is a time by itself.
    how: Any = {"delay_from_commit": body.message.deliver_at is None, "by": parse.producer(context)}
    use = first_use(state_lookup(context, topic))
    transaction, is_new = deps.transactor.prepare(topic, draft, checks, first_use=use, **how)
    view, secret = transaction_view(transaction), format_secret(deps.transactor.secret(topic))
    return Response({**view, "check_secret": secret, "duplicate": not is_new}, 201 if is_new else 200)


@call("POST", f"{_TRANSACTION}/commit", **BY_PRODUCERS, body=NoBody)
def commit(context: Context) -> Response[TransactionView]:
    """Commit: the message enters its topic, or waits until it is due. Repeating the call is harmless."""
    return _decide(context, TransactionState.COMMITTED)


@call("POST", f"{_TRANSACTION}/rollback", **BY_PRODUCERS, body=NoBody)
def roll_back(context: Context) -> Response[TransactionView]:
    """Roll back: no consumer will ever get the message. Repeating the call is harmless."""
    return _decide(context, TransactionState.ROLLED_BACK)


def _decide(context: Context, decision: TransactionState) -> Response[TransactionView]:
    transaction = context.deps.transactor.decide(_find(context), decision, by=context.by)
    return Response(transaction_view(transaction))


@call("GET", _TRANSACTION, scopes=SEND)
def get_transaction(context: Context) -> Response[TransactionView]:
    """A transaction: its state, its checks, and the place of its message."""
    return Response(transaction_view(_find(context)))


def _find(context: Context) -> Transaction:
    """The transaction, if the caller may use its topic; else NotFound, as if it did not exist."""
    transaction = context.deps.transactor.find(context.params["id"])
    if context.caller and not context.caller.may_use(transaction.topic):
        from ...services.produce.transactions import not_found

        raise not_found()
    return transaction


@call("GET", f"{TOPIC}/transactions", scopes=SEND, query=("state", *PAGED))
def list_transactions(context: Context) -> Response[lists.Page[TransactionView]]:
    """List transactions in a state: PREPARED (the default), UNDECIDED or ROLLED_BACK.

    PREPARED ones come by their next checks, the others by time of preparation. Committed ones are messages of the
    topic."""
    from ...services.inspect.waiting import of_state, reader

    topic = context.topic()
    state = context.query.get("state", TransactionState.PREPARED)
    if state not in (states := (TransactionState.PREPARED, *LISTED)):
        raise invalid("state", f"must be one of {', '.join(states)}")
    purpose = "transactions:" + json.dumps([topic.name, state])
    after, limit = lists.page_start(context, purpose), lists.limit(context.query)
    adapters = context.deps.adapters
    rows, next_start = of_state(reader(adapters.timers), adapters.transactions, topic, state, limit, after)
    return lists.page(context, purpose, [transaction_view(row) for row in rows], next_start)


class RecheckBody(many.ManyBody):
    """Undecided transactions to ask for again; `ids` are theirs. Without `topic`: of all topics."""

    topic: Name | None = None


class RecheckedTransactions(many.ManyAnswer):
    rechecked: NotRequired[Count]


Rechecked = Annotated[RecheckedTransactions, either(["rechecked"], ["count", "sample"])]


@call("POST", "/v1/transactions/recheck", **BY_PRODUCERS, body=RecheckBody)
def recheck(context: Context) -> Response[Rechecked]:
    """Ask the producers of UNDECIDED transactions again, at once and then as before.

    Those without a check URL are left out."""
    name, transactor = context.body.topic, context.deps.transactor
    check_topic(context.caller, name)
    topic = context.deps.catalog.topic(name) if name else None
    work: many.Work[Transaction] = many.Work(
        counted="rechecked",
        names=[name or ""],
        by_ids=lambda ids: transactor.undecided_of(topic, ids),
        page=lambda which, after, most: transactor.undecided(topic, which, after, most),
        act=lambda items, *_: sum(transactor.recheck(each) for each in items),
        failure=lambda each: each.failure,
    )
    return Response(many.answer(context, work))


def transaction_view(transaction: Transaction) -> TransactionView:
    """A transaction without its message."""
    is_checked = transaction.check_url and transaction.state is TransactionState.PREPARED
    own = {"transaction_id": transaction.id, "check_after_seconds": transaction.check_after_ms // 1000}
    next_check_at = at(transaction.check_ms) if is_checked else None
    body = shown(TransactionView, transaction, **own, next_check_at=next_check_at)
    if transaction.due_ms is not None:
        body["deliver_at"] = at(transaction.due_ms)
    return body
