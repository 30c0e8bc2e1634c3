"""Transactions and their decision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..domain.append import DedupEntry
from ..domain.timer import Timer
from ..domain.topic import Topic
from ..domain.transaction import Counted, Transaction, TransactionState


class Transactions(Protocol):
    """Messages that wait for a decision, and what was decided."""

    def prepare(self, transaction: Transaction, dedup: Sequence[DedupEntry] = ()) -> tuple[DedupEntry, ...]:
        """Store a transaction with its first CHECK timer and its dedup ids. Returns the entries of ids that were
        used before; then nothing is stored."""
        ...

    def get(self, transaction_id: str) -> Transaction | None:
        """One transaction, read consistently."""
        ...

    def change(
        self, old: Transaction, new: Transaction, store: Sequence[Timer] = (), drop: Sequence[Timer] = ()
    ) -> bool:
        """Replace `old` by `new` as the next version, if it still has its version, and store and delete timers in
        the same transaction. False: another process has changed it."""
        ...

    def of_state(
        self, topic: Topic, state: TransactionState, after: str | None, limit: int
    ) -> list[Transaction]:
        """The topic's transactions of a state by time of preparation, behind a position, without their drafts,
        `keys_until_s` and `answer_by_ms`. It may be a moment old."""
        ...

    def count(self, topic: Topic, state: TransactionState, most: int) -> Counted:
        """How many transactions of a topic are in a state. At most about `most` of them are counted. It may be a
        moment old."""
        ...
