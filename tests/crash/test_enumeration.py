"""Crash enumeration: each storage call of each flow meets each fault; afterwards nothing that was promised is broken.

I1 to I10, I14, I15, I16 and I20 of docs/invariants.md are judged by tests/support/history over everything that clients
and subscribers saw and what the tables hold at rest.
"""

from __future__ import annotations

import os
from functools import cache, partial

import pytest

from chalicelib.services.consume.claim import Claimer
from tests.crash.all_flows import CALLS, FLOWS
from tests.crash.scenes import Result, complaints, play
from tests.support.faults import DEADLY, QUICK_FAULTS, Fault, Note
from tests.support.flows import SharedTables
from tests.support.planting import Bug

SOAK = bool(os.environ.get("HEADRACE_SOAK"))
FAULTS = tuple(Fault) if SOAK else QUICK_FAULTS
_REFUSED = {Fault.FAIL_ONCE, Fault.FAIL_ALWAYS, Fault.THROTTLED, Fault.CONFLICT, Fault.UNPROCESSED}
_played: dict[object, tuple[str, Fault, int]] = {}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("name", FLOWS)
def test_no_fault_at_any_call_breaks_a_promise(tables: SharedTables, name: str, fault: Fault) -> None:
    found: list[str] = []
    for at in _points(name, fault, _healthy(tables, name).plan.notes):
        result = play(tables, FLOWS[name], fault, at)
        call = [*result.plan.calls, *["never made"] * at][at - 1]
        found += [f"call {at} ({call}): {complaint}" for complaint in complaints(result, fault)]
    assert not found, "\n".join(found)


@cache
def _healthy(tables: SharedTables, name: str) -> Result:
    return play(tables, FLOWS[name], name=name)


def _points(name: str, fault: Fault, notes: list[Note]) -> list[int]:
    """The calls to spoil. Points that are as good as others are left out, unless there is time for all."""
    fitting = [at for at, note in enumerate(notes, 1) if fault in note.spoilt_by]
    if SOAK:
        return fitting
    points = [(at, _what(fault, notes, at)) for at in fitting]
    return [at for at, what in points if _played.setdefault(what, (name, fault, at)) == (name, fault, at)]


def _what(fault: Fault, notes: list[Note], at: int) -> tuple[object, ...]:
    """What makes points equal. Deaths: what had been written, and whether anybody was called since. Where nothing is
    lost, or the store stays away as after a death: the request. Else what comes before and after it as well."""
    if fault in DEADLY:
        done = notes[: at if fault is Fault.DIE_AFTER else at - 1]
        writes = [n for n, note in enumerate(done) if note.is_write]
        called = 0 if fault is Fault.DIE_AFTER else notes[at - 1].outside
        before = notes[writes[-1]].outside if writes else 0
        return called > before, *(notes[n].shape for n in writes)
    is_alone = fault in _REFUSED or (fault is Fault.LOST_ANSWER and not notes[at - 1].is_write)
    around = 0 if is_alone else 1
    return fault, *(note.shape for note in notes[max(0, at - 1 - around) : at + around])


def test_a_grant_stands_without_the_next_claim_but_not_without_its_own_write(
    tables: SharedTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault, name = Fault.FAIL_ALWAYS, "claim from the lane"
    unanswered = partial(play, tables, FLOWS[name], fault, CALLS[name])  # the last call: a second claim
    assert complaints(unanswered(), fault) == []
    believing = Bug(Claimer, "_wrote", "if token not in self._states.read(key).cursor.leases:", "if False:")
    believing.plant(monkeypatch)
    assert "answered OK though the store did not answer" in complaints(unanswered(), fault)


@pytest.mark.parametrize("name", FLOWS)
def test_a_flow_makes_as_many_storage_calls_as_it_is_known_to(tables: SharedTables, name: str) -> None:
    result = _healthy(tables, name)
    assert complaints(result, None) == []
    made = len(result.plan.calls)
    assert made == CALLS[name], f"{result.plan.calls}: is the new call worth its price?"
