"""Transactions."""

from typing import NotRequired, TypedDict

from ...domain.transaction import Transaction, TransactionState
from .common import Count, Time, at, at_or_none


class TransactionView(TypedDict):
    """A transaction without its message. Once committed, the message is in `shard` at `offset`, or waits until
    `deliver_at`. `checks` were made of whoever prepared it; `last_answer` is what came of the last."""

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


def view(transaction: Transaction) -> TransactionView:
    """A transaction without its message."""
    is_checked = transaction.check_url and transaction.state is TransactionState.PREPARED
    body: TransactionView = {
        "transaction_id": transaction.id,
        "message_id": transaction.message_id,
        "topic": transaction.topic,
        "state": transaction.state,
        "shard": transaction.shard,
        "offset": transaction.offset,
        "prepared_at": at(transaction.prepared_ms),
        "decided_at": at_or_none(transaction.decided_ms),
        "check_url": transaction.check_url,
        "check_after_seconds": transaction.check_after_ms // 1000,
        "checks": transaction.checks,
        "last_answer": transaction.last_answer,
        "next_check_at": at(transaction.check_ms) if is_checked else None,
    }
    if transaction.due_ms is not None:
        body["deliver_at"] = at(transaction.due_ms)
    return body
