"""Messages that wait for the decision of a transaction."""

from __future__ import annotations

from ...domain.transaction import Transaction, TransactionState
from ..visit import Page, Shown, Visit

_LINES = 30


def transactions(visit: Visit) -> Shown:
    """Messages that wait for a decision: first those whose checks have ended, then the others."""
    topic, keys = visit.topic(), visit.deps.signing_keys
    purpose = f"console-transactions:{topic.uid}"
    last_state, _, after = (keys.verified(purpose, visit.query.get("after", "")) or "").partition(" ")
    states = [TransactionState.UNDECIDED, TransactionState.PREPARED]
    rows: list[Transaction] = []
    for state in states[states.index(TransactionState(last_state)) :] if last_state else states:
        rows += visit.deps.transactor.of_state(topic, state, after or None, _LINES - len(rows))
        if len(rows) == _LINES:
            break
        after = ""
    following = keys.sign(purpose, f"{rows[-1].state} {rows[-1].sort_key}") if len(rows) == _LINES else None
    return Page("transactions.html", {"topic": topic, "rows": rows, "following": following})
