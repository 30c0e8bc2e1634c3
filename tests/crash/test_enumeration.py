"""Crash enumeration: each storage call of each flow meets each fault; afterwards nothing that was promised is broken.

The invariants are those of the reliability page (I1 to I10, I14, I15, I16, I20), judged by tests/support/history over
everything that clients and subscribers saw and what the tables hold at rest.
"""

from __future__ import annotations

import os
from functools import cache

import pytest

from tests.crash.flow_table import CALLS, FLOWS
from tests.crash.scenes import Result, complaints, play
from tests.support.faults import HARMLESS, Fault, Note
from tests.support.flows import Stage

SOAK = bool(os.environ.get("HEADRACE_SOAK"))
# What these do depends on the request alone: throttling takes the road of FAIL_ONCE, and what a store leaves that
# stays away is what a death leaves, so only the answer is to be judged.
_BY_SHAPE = HARMLESS | {Fault.FAIL_ALWAYS}
FAULTS = tuple(fault for fault in Fault if SOAK or fault is not Fault.THROTTLED)
_played: dict[tuple[Fault, str], str] = {}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("name", FLOWS)
def test_no_fault_at_any_call_breaks_a_promise(stage: Stage, name: str, fault: Fault) -> None:
    found: list[str] = []
    for at in _points(name, fault, _healthy(stage, name).plan.notes):
        result = play(stage, FLOWS[name], fault, at)
        call = [*result.plan.calls, *["never made"] * at][at - 1]
        found += [f"call {at} ({call}): {complaint}" for complaint in complaints(result, fault)]
    assert not found, "\n".join(found)


@cache
def _healthy(stage: Stage, name: str) -> Result:
    return play(stage, FLOWS[name])


def _points(name: str, fault: Fault, notes: list[Note]) -> list[int]:
    """The calls to spoil. Points that are as good as others are left out, unless there is time for all."""
    chosen: dict[object, int] = {}
    for at, note in reversed(list(enumerate(notes, 1))):
        if fault not in note.spoilt_by:
            continue
        last = at == len(notes) and note.is_write
        if SOAK or fault is Fault.LOST_FOR_GOOD:
            chosen[at] = at
        elif (fault is Fault.DIE_BEFORE and note.behind) or (fault is Fault.DIE_AFTER and last):
            chosen[at] = at  # dying elsewhere leaves the same behind
        elif fault is Fault.STALE_READ or (fault in _BY_SHAPE and _is_first(fault, note, name)):
            chosen[note.shape] = at
    return sorted(chosen.values())


def _is_first(fault: Fault, note: Note, name: str) -> bool:
    """Is it this flow that plays the fault at calls of this shape?"""
    return _played.setdefault((fault, note.shape), name) == name


@pytest.mark.parametrize("name", FLOWS)
def test_a_flow_makes_as_many_storage_calls_as_it_is_known_to(stage: Stage, name: str) -> None:
    result = _healthy(stage, name)
    assert complaints(result, None) == []
    made = len(result.plan.calls)
    assert made == CALLS[name], f"{result.plan.calls}: is the new call worth its price?"
