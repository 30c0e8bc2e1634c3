"""Crash enumeration: each storage call of each flow meets each fault; afterwards nothing that was promised is broken.

I1 to I10, I14, I15, I16 and I20 of docs/invariants.md are judged by tests/support/history over everything that clients
and subscribers saw and what the tables hold in the end.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache, partial

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from chalicelib.services.consume.claim import Claimer
from tests.conftest import SOAK
from tests.crash.all_flows import CALLS, FLOWS
from tests.crash.destination_flows import MANY_STEPS, STEPS
from tests.crash.points import FAULTS, Played
from tests.crash.scenes import RESTS, Result, begin, come_to_rest, complaints, play
from tests.support.faults import Death, Fault, FaultPlan
from tests.support.flows import SharedTables
from tests.support.planting import Bug
from tests.support.rest import clear_times

_played = Played()
_steps = st.tuples(st.sampled_from([*STEPS]), st.sampled_from(FAULTS), st.integers(1, 20))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("name", FLOWS)
def test_no_fault_at_any_call_breaks_a_promise(tables: SharedTables, name: str, fault: Fault) -> None:
    failures: list[str] = []
    for at in _played.points(name, fault, _healthy(tables, name).plan.notes):
        result = play(tables, FLOWS[name], fault, at, rests=RESTS if SOAK else RESTS[-1:])
        call = [*result.plan.calls, *["never made"] * at][at - 1]
        failures += [f"call {at} ({call}): {complaint}" for complaint in complaints(result, fault)]
    assert not failures, "\n".join(failures)


@settings(
    max_examples=60 * SOAK or 6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(_steps, min_size=4, max_size=12))
def test_whatever_dies_each_end_is_told_once(
    tables: SharedTables, script: list[tuple[str, Fault, int]]
) -> None:
    scene, _ = begin(tables, MANY_STEPS)
    for step, fault, at in [("produce", FAULTS[0], 99), *script]:
        with suppress(Death, Exception):
            STEPS[step](scene, scene.client(FaultPlan(fault, at)))
    come_to_rest(scene, MANY_STEPS, RESTS)
    client = scene.client()
    assert MANY_STEPS.also(scene, client) == []
    clear_times(client.deps)


@cache
def _healthy(tables: SharedTables, name: str) -> Result:
    return play(tables, FLOWS[name], name=name)


def test_a_grant_stands_without_the_next_claim_but_not_without_its_own_write(
    tables: SharedTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault, name = Fault.FAIL_ALWAYS, "claim from the lane"
    play_without_answer = partial(
        play, tables, FLOWS[name], fault, CALLS[name]
    )  # the last call: a second claim
    assert complaints(play_without_answer(), fault) == []
    line = "if ours is None or self.states.read(key).cursor.leases.get(token) != ours:"
    bug = Bug(Claimer, "_write", line, "if False:")
    bug.plant(monkeypatch)
    assert "answered OK though the store did not answer" in complaints(play_without_answer(), fault)


@pytest.mark.parametrize("name", FLOWS)
def test_a_flow_makes_as_many_storage_calls_as_it_is_known_to(tables: SharedTables, name: str) -> None:
    result = _healthy(tables, name)
    assert complaints(result, None) == []
    count = len(result.plan.calls)
    assert count == CALLS[name], f"{result.plan.calls}: is the new call worth its price?"
