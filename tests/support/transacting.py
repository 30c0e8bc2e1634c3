"""Prepares and decides transactions on a desk."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.errors import HeadraceError
from chalicelib.domain.message import Draft
from chalicelib.domain.transaction import Transaction, TransactionState
from chalicelib.services.produce.transactions import Checks
from chalicelib.store.layout import FRAGMENTS
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.desk import Desk

URL = "https://bank.example.com/check"

ASKED = Checks(URL, 60)

COMMIT, ROLLBACK = TransactionState.COMMITTED, TransactionState.ROLLED_BACK


def prepare(desk: Desk, draft: Draft | None = None, checks: Checks = ASKED, **how: Any) -> Transaction:
    return desk.deps.transactor.prepare(desk.topic, draft or make.draft({"paid": 1}), checks, **how)[0]


def decide(deps: Deps, transaction: Transaction, state: TransactionState) -> Transaction | str:
    """The transaction afterwards, or the code of the refusal."""
    try:
        return deps.transactor.decide(transaction, state)
    except HeadraceError as error:
        return error.code


def reread(desk: Desk, transaction: Transaction) -> Transaction:
    return desk.deps.transactor.find(transaction.id)


def timers_of(desk: Desk, *ids: str) -> list[int]:
    """When the timers with these ids are due."""
    timers = desk.stage.adapters.timers
    due_timers = (t for f in range(FRAGMENTS) for t in timers.first_due(f, 10**15 - 2, 10_000).timers)
    return sorted(t.due_ms for t in due_timers if t.id in ids)
