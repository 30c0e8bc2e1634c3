"""The prepared messages of a topic, in the order of preparation: first those that are checked, then the undecided."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...domain.limits import MAX_ANSWER_BYTES
from ...domain.topic import Topic
from ...domain.transaction import UNDECIDED, Transaction, TransactionState
from .filters import Filters
from .lookup import passes_before_log

if TYPE_CHECKING:
    from ...store.transactions import Transactions


Position = tuple[TransactionState, str | None]
"""A state, and the sort key of the last transaction of that state that was read (None: none yet)."""


def in_order(
    transactions: Transactions, topic: Topic, filters: Filters, limit: int, start: Position | None
) -> tuple[list[Transaction], Position | None]:
    """Those of the next `limit` transactions that the filters ask for, as many as one answer can hold, and where the
    next page starts (None: the end). The filters' times are times of preparation. One read for the list, and one for
    each transaction."""
    state, after = start or (UNDECIDED[0], None)
    messages: list[Transaction] = []
    weight = 0
    rows = transactions.of_state(topic, state, after, limit)
    for transaction in transactions.whole(rows):
        if _passes(transaction, filters):
            weight += transaction.message.draft.weight
            if messages and weight > MAX_ANSWER_BYTES:
                return messages, (state, after)
            messages.append(transaction)
        after = transaction.sort_key
    if len(rows) == limit:
        return messages, (state, rows[-1].sort_key)
    following = UNDECIDED[UNDECIDED.index(state) + 1 :]
    return messages, (following[0], None) if following else None


def _passes(transaction: Transaction, filters: Filters) -> bool:
    """Decided since the list was read? Then it is not prepared any more."""
    if transaction.state not in UNDECIDED:
        return False
    return filters.covers(transaction.prepared_ms) and passes_before_log(transaction, filters)
