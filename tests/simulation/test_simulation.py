"""Simulation: everybody at once, in virtual time, under trouble drawn from a seed; then peace, and nothing is missing.

I1 to I10 and I14 to I16 of docs/invariants.md are judged by tests/support/history over what clients saw, and by
tests/simulation/judge over what the store holds, at each write and in the end; I9 of delayed messages, I11 to I13 of
transactions, by tests/simulation/promises. To see a seed again: `HEADRACE_SEED=17 pytest tests/simulation`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from tests.simulation.figures import count
from tests.simulation.judge import play
from tests.simulation.plan import Plan, plan_of_flow, plan_of_seeks
from tests.simulation.seeds import blocks
from tests.simulation.telling import story


@pytest.mark.parametrize("seeds", blocks(24, 100_000), ids=lambda seeds: f"from-{seeds.start}")
def test_whatever_happens_every_message_has_its_end(seeds: range) -> None:
    for seed in seeds:
        world, complaints = play(seed)
        count(world)
        assert not complaints, story(world, complaints)


@pytest.mark.parametrize("seeds", blocks(8, 5_000), ids=lambda seeds: f"from-{seeds.start}")
@pytest.mark.parametrize("plan_of", [plan_of_seeks, plan_of_flow])
def test_what_is_counted_beside_seeks_and_under_any_control_of_flow_adds_up(
    seeds: range, plan_of: Callable[[int], Plan]
) -> None:
    for seed in seeds:
        world, complaints = play(seed, plan_of(seed))
        count(world)
        assert not complaints, story(world, complaints)


def test_the_worlds_of_flow_draw_each_way_to_control_it() -> None:
    plans = [plan_of_flow(seed) for seed in range(32)]
    drawn = {name for plan in plans for group in plan.groups for name in group.settings}
    assert drawn >= {"rate_limit", "key_concurrency", "tenant_share", "tags"}
    assert {group.mode for plan in plans for group in plan.groups} == {"queue", "serial", "broadcast"}
    assert {(plan.tenants, plan.topic["priorities"], bool(plan.delayed)) for plan in plans} == {
        *product((False, True), (1, 3), (False, True))
    }


@pytest.mark.parametrize("seed", [3])
def test_the_same_seed_is_the_same_story(seed: int) -> None:
    one, other = play(seed)[0], play(seed)[0]
    assert one.path == other.path
    assert one.events == other.events
