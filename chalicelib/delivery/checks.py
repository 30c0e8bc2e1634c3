"""What a producer is asked about a transaction, and what its answer means."""

from __future__ import annotations

from typing import Literal

import msgspec

from ..domain import strict_json
from ..domain.errors import Malformed
from ..domain.times import rfc3339
from ..domain.transaction import CheckAnswer, Transaction, TransactionState
from .egress import Reply, Unreached

_DECISIONS = {"commit": TransactionState.COMMITTED, "rollback": TransactionState.ROLLED_BACK, "unknown": None}


class _Told(msgspec.Struct):
    state: Literal["commit", "rollback", "unknown"]


def question(of: Transaction) -> bytes:
    """The body of a check. `checks` is its number."""
    content = {
        "transaction_id": of.id,
        "topic": of.topic,
        "message_id": of.message_id,
        "keys": of.draft.keys if of.draft else (),
        "checks": of.checks + 1,
        "prepared_at": rfc3339(of.prepared_ms),
    }
    return msgspec.json.encode(content)


def read(answer: Reply | Unreached) -> CheckAnswer:
    """The decision in an answer; anything else is UNKNOWN."""
    if isinstance(answer, Unreached):
        return CheckAnswer(None, answer.detail)
    if answer.status != 200:
        return CheckAnswer(None, f"HTTP {answer.status}")
    try:
        word = strict_json.converted(strict_json.parse(answer.body), _Told).state
    except (Malformed, msgspec.ValidationError):
        return CheckAnswer(None, "the answer is malformed")
    return CheckAnswer(_DECISIONS[word], word)
