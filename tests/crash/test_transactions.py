"""Transactions under faults: each storage call of each step meets each fault; afterwards I11, I12, I13 and I15 hold."""

from __future__ import annotations

from functools import cache

import pytest

from tests.crash.points import FAULTS, Played
from tests.crash.transaction_flows import FLOWS, play
from tests.support.faults import Fault, FaultPlan
from tests.support.flows import SharedTables

_played = Played(
    of_deaths=lambda flow: flow
)  # what a producer does after one, and what it says, is each flow's own


@cache
def _healthy(tables: SharedTables, name: str) -> tuple[FaultPlan, list[str]]:
    return play(tables, FLOWS[name])


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("name", FLOWS)
def test_no_fault_at_any_call_breaks_a_transaction(tables: SharedTables, name: str, fault: Fault) -> None:
    failures: list[str] = []
    calls = _healthy(tables, name)[0].notes
    for at in _played.points(name, fault, calls):
        failures += [
            f"call {at} ({calls[at - 1].operation}): {x}" for x in play(tables, FLOWS[name], fault, at)[1]
        ]
    assert not failures, "\n".join(failures)


CALLS = {
    "prepare": 4,
    "prepare with a dedup id": 4,
    "commit": 5,
    "prepare by key": 5,
    "commit by key": 5,
    "commit for later": 4,
    "commit, and nobody repeats it": 5,
    "commit what was rolled back": 4,
    "commit for later what was rolled back": 3,
    "roll back what was committed": 2,
    "check: commit, too late": 5,
    "check: rollback, too late": 5,
    "roll back": 3,
    "check: commit": 8,
    "check: rollback": 7,
    "check: unknown": 6,
    "a rare check: commit": 10,
    "a rare check: rollback": 7,
    "the last check": 8,
    "move and check": 9,
}


@pytest.mark.parametrize("name", FLOWS)
def test_a_step_makes_as_many_storage_calls_as_it_is_known_to(tables: SharedTables, name: str) -> None:
    plan, wrong = _healthy(tables, name)
    assert wrong == []
    assert len(plan.calls) == CALLS[name], plan.calls
