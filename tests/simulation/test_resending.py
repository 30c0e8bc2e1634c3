"""Named requests are sent again, under all troubles: each message is stored once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chalicelib.services.produce.resend import ResendLookup
from tests.simulation.judge import play
from tests.simulation.plan import Plan, plan_of
from tests.simulation.seeds import blocks
from tests.simulation.telling import story
from tests.support.planting import Bug


def _plan(seed: int) -> Plan:
    """Without growth: a message without a key is looked for in one shard, chosen by how many there are."""
    plan = plan_of(seed)
    return replace(plan, named=3, deeds=tuple(deed for deed in plan.deeds if deed != "grow"))


@pytest.mark.parametrize("seeds", blocks(3, 5_000), ids=lambda seeds: f"from-{seeds.start}")
def test_what_is_sent_again_under_its_name_is_stored_once(seeds: range) -> None:
    for seed in seeds:
        world, complaints = play(seed, _plan(seed))
        assert not complaints, story(world, complaints)


def test_a_look_that_goes_back_too_short_a_time_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    Bug(ResendLookup, "before", "- SLACK_MS", "- 1_000").plant(monkeypatch)
    assert any(play(seed, _plan(seed))[1] for seed in (4, 29)), "seeds that see it"
