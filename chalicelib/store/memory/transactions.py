"""ports.Transactions in memory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from ...domain.timer import Timer
from ...domain.topic import Topic
from ...domain.transaction import Transaction, TransactionState, check_timer
from ...ports.log import DedupEntry
from ...ports.transactions import Counted
from .tables import MemoryTables, timer_place


class MemoryTransactions:
    """ports.Transactions over the common tables."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    def prepare(self, transaction: Transaction, dedup: Sequence[DedupEntry] = ()) -> tuple[DedupEntry, ...]:
        with self._tables.lock:
            duplicates = self._tables.used_entries(dedup)
            if not duplicates:
                self._tables.remember(dedup)
                self._tables.put_transaction(transaction)
                self._tables.put_timers([check_timer(transaction)])
            return duplicates

    def get(self, transaction_id: str) -> Transaction | None:
        with self._tables.lock:  # a transaction of the store is seen whole or not at all
            return self._tables.transactions.get(transaction_id)

    def change(
        self, old: Transaction, new: Transaction, store: Sequence[Timer] = (), drop: Sequence[Timer] = ()
    ) -> bool:
        with self._tables.lock:
            if not self._tables.has_version(old):
                return False
            self._tables.put_transaction(replace(new, version=old.version + 1))
            self._tables.put_timers(store)
            for timer in drop:
                self._tables.timers.pop(timer_place(timer), None)
            return True

    def of_state(
        self, topic: Topic, state: TransactionState, after: str | None, limit: int
    ) -> list[Transaction]:
        with self._tables.lock:
            of_topic = [t for t in self._tables.transactions.values() if t.topic_uid == topic.uid]
        transactions = sorted((t for t in of_topic if t.state is state), key=lambda t: t.sort_key)
        return [
            replace(t, draft=None, committed_by="", keys_until_s=0, answer_by_ms=0)
            for t in transactions
            if after is None or t.sort_key > after
        ][:limit]

    def count(self, topic: Topic, state: TransactionState, most: int) -> Counted:
        return Counted(len(self.of_state(topic, state, None, sys.maxsize)))

    def drop_expired(self, now_s: int) -> None:
        """Delete expired rows, as DynamoDB's TTL does."""
        with self._tables.lock:
            for transaction in list(self._tables.transactions.values()):
                if transaction.expires_s is not None and transaction.expires_s <= now_s:
                    del self._tables.transactions[transaction.id]
