"""Bugs of agreement, planted one at a time: the flows of transactions must show each."""

from __future__ import annotations

import pytest

from chalicelib.domain import transaction
from chalicelib.services.produce.check_back import Checker
from chalicelib.services.produce.transactions import Transactor
from chalicelib.store import transactions
from chalicelib.store.transactions import Transactions
from tests.crash.transaction_flows import FLOWS, play
from tests.support.faults import Fault
from tests.support.flows import SharedTables
from tests.support.planting import Bug

_NO_CONDITION = Bug(
    transactions,
    "transaction_write",
    '"e = :e"',
    '"e = :e OR attribute_exists(e)"',
    also=("chalicelib.store.log",),
)

BUGS: dict[str, tuple[Bug, str, Fault | None]] = {
    "a commit whatever was decided": (_NO_CONDITION, "commit what was rolled back", None),
    "a commit for later whatever was decided": (_NO_CONDITION, "commit for later what was rolled back", None),
    "a rollback whatever was decided": (_NO_CONDITION, "roll back what was committed", None),
    "a check that is believed after the decision": (
        Bug(
            Transactor,
            "decide",
            "if transaction.state in states.DECIDED:",
            "if transaction.state in states.DECIDED and not (answer and transaction.state is not decision):",
        ),
        "check: commit, too late",
        None,
    ),
    "a commit that appends, and then decides": (
        Bug(
            Transactor,
            "_commit",
            "(message,) = self.producer.move(topic, [(transaction, draft)])",
            "(message,) = self.producer.produce(topic, [replace(draft, dedup_id=None)])\n"
            "    new = states.committed(transaction, now_ms, shard=message.shard, offset=message.offset)\n"
            "    self.transactions.change(transaction, new)",
        ),
        "commit",
        Fault.DIE_AFTER,
    ),
    "a commit that decides, and then files its timer": (
        Bug(
            Transactor,
            "_commit_for_later",
            "if not self.transactions.change(transaction, new, store=[timer]):\n        return None",
            "if not self.transactions.change(transaction, new):\n"
            "        return None\n"
            "    self.producer.timers.store([timer])",
        ),
        "commit for later",
        Fault.DIE_AFTER,
    ),
    "a prepared message that nobody is asked about": (
        Bug(
            Transactions,
            "prepare",
            'self._dynamo.put(tables.timers, [timer_put(tables, check_timer(transaction))["Put"]["Item"]])',
            "pass",
        ),
        "prepare",
        None,
    ),
    "a dedup id that prepare forgets": (
        Bug(Transactions, "prepare", "self._dynamo, dedup", "self._dynamo, ()"),
        "prepare with a dedup id",
        None,
    ),
    "a check that counts before it is made": (
        Bug(
            Checker,
            "_check",
            "new = replace(transaction, check_ms=check.next_ms)",
            "new = replace(transaction, check_ms=check.next_ms, checks=transaction.checks + 1)",
        ),
        "check: unknown",
        None,
    ),
    "a check that is not made again though nobody was asked": (
        Bug(
            transaction,
            "may_begin",
            "is_overdue = 0 < of.answer_by_ms <= now_ms",
            "is_overdue = False",
        ),
        "a rare check: commit",
        Fault.DIE_AFTER,
    ),
    "an answer that is lost while the store refuses it": (
        Bug(
            Checker,
            "_check",
            "new = replace(new, answer_by_ms=now_ms + round(stored_in_seconds * 1000))",
            "new = replace(new, answer_by_ms=0)",
        ),
        "a rare check: rollback",
        Fault.FAIL_ALWAYS,
    ),
    "a check too many": (
        Bug(Checker, "_conclude", "new.checks >= MAX_CHECKS", "new.checks > MAX_CHECKS"),
        "the last check",
        None,
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_seen(tables: SharedTables, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    bug, flow, fault = BUGS[name]
    calls = len(play(tables, FLOWS[flow])[0].calls) if fault else 1
    bug.plant(monkeypatch)
    assert any(play(tables, FLOWS[flow], fault, at)[1] for at in range(1, calls + 2))
