"""Crash enumeration: each storage call of each flow meets each fault; afterwards nothing that was promised is broken.

The invariants are those of the reliability page (I1, I2, I3, I4, I5, I6, I7, I8, I9, I14, I15, I16, I20), judged by
tests/support/history over everything the clients saw and what the tables hold at rest.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable

import pytest

from tests.crash.flow_table import CALLS, FLOWS
from tests.crash.scenes import complaints, play
from tests.support.faults import SELECTIVE, THE_FIVE, WRITES, Fault
from tests.support.flows import Stage

MOST_CALLS = 200
# To die after a read is to die before the next call; to lose its answer is to have it fail once.
_AS_GOOD_AS_OTHERS = {Fault.DIE_AFTER, Fault.LOST_ANSWER}
SOAK = bool(os.environ.get("HEADRACE_SOAK"))
FAULTS = tuple(Fault) if SOAK else (*THE_FIVE, *SELECTIVE)  # throttling takes the road of FAIL_ONCE


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("name", FLOWS)
def test_no_fault_at_any_call_breaks_a_promise(stage: Stage, name: str, fault: Fault) -> None:
    found: list[str] = []
    for at in _points(stage, name, fault):
        outcome = play(stage, FLOWS[name], fault, at)
        if len(outcome.plan.calls) < at:
            break
        call = outcome.plan.calls[at - 1]
        found += [f"call {at} ({call}): {complaint}" for complaint in complaints(outcome, fault)]
        assert at < MOST_CALLS
    assert not found, "\n".join(found)


def _points(stage: Stage, name: str, fault: Fault) -> Iterable[int]:
    """The calls to spoil: all, or those that a selective fault can happen to."""
    if fault not in SELECTIVE and (SOAK or fault not in _AS_GOOD_AS_OTHERS):
        return itertools.count(1)
    plan = play(stage, FLOWS[name], fault).plan
    return (
        plan.fitting if fault in SELECTIVE else [n for n, call in enumerate(plan.calls, 1) if call in WRITES]
    )


@pytest.mark.parametrize("name", FLOWS)
def test_a_flow_makes_as_many_storage_calls_as_it_is_known_to(stage: Stage, name: str) -> None:
    outcome = play(stage, FLOWS[name])
    assert complaints(outcome, None) == []
    assert len(outcome.plan.calls) == CALLS[name], f"{outcome.plan.calls}: is the new call worth its price?"
