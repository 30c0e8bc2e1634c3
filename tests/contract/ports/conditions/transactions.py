"""Races for a transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from chalicelib.domain.append import DedupEntry, Stored
from chalicelib.domain.transaction import Transaction, TransactionState, rolled_back
from tests.contract.ports.conditions.common import is_remembered_for_its_window, put
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.stages import Stage


def _transaction() -> Transaction:
    check_ms = START_MS + 60_000
    return Transaction(make.uid("t"), "orders", "u1", START_MS, check_ms, 60_000, 86_400, make.draft(1))


def a_transaction_has_its_dedup_id_once(stage: Stage) -> None:
    def prepares(entry: DedupEntry) -> tuple[DedupEntry, ...]:
        transaction = _transaction()
        known_entries = stage.adapters.transactions.prepare(transaction, [entry])
        assert (stage.adapters.transactions.get(transaction.id) is None) is bool(known_entries)
        return known_entries

    is_remembered_for_its_window(prepares)


def a_transaction_is_decided_as_it_was_read(stage: Stage) -> None:
    transactions = stage.adapters.transactions
    transaction = _transaction()
    assert transactions.prepare(transaction) == ()
    after_check = replace(transaction, checks=1)
    assert transactions.change(transaction, after_check)
    decisions: tuple[Callable[[], bool], ...] = (
        lambda: transactions.change(transaction, rolled_back(transaction, START_MS)),
        lambda: put(stage, make.shard(), make.segment(0, 1), transaction) == Stored(),
    )
    for decide in decisions:
        assert not decide()
        as_read = transactions.get(transaction.id)
        assert as_read
        assert (as_read.state, as_read.checks) == (TransactionState.PREPARED, 1)
    current = replace(after_check, version=1)
    assert put(stage, make.shard(), make.segment(0, 1), current) == Stored()
    decision = transactions.get(transaction.id)
    assert decision
    assert (decision.state, decision.offset) == (TransactionState.COMMITTED, 0)
    assert not transactions.change(current, rolled_back(current, START_MS))


def a_transaction_is_put_once(stage: Stage) -> None:
    """The SDK may send it again after the producer has decided."""
    transactions, transaction = stage.adapters.transactions, _transaction()
    transactions.prepare(transaction)
    transactions.change(transaction, rolled_back(transaction, START_MS))
    transactions.prepare(transaction)
    as_read = transactions.get(transaction.id)
    assert as_read
    assert as_read.state is TransactionState.ROLLED_BACK


SCENES = (
    a_transaction_is_put_once,
    a_transaction_has_its_dedup_id_once,
    a_transaction_is_decided_as_it_was_read,
)
