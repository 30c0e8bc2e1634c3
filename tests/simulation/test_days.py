"""Weeks of a stage, seed by seed: rows end, jobs come by, settings change, and nothing that is owed vanishes (I1, I2,
I5, I9, I10, I15). To see a seed again: `HEADRACE_SEED=17 pytest tests/simulation/test_days.py`."""

from __future__ import annotations

import pytest

from tests.simulation.figures import count_days
from tests.simulation.seeds import blocks
from tests.simulation.weeks import play, story


@pytest.mark.parametrize("seeds", blocks(150, 20_000), ids=lambda seeds: f"from-{seeds.start}")
def test_nothing_that_is_owed_ends_with_its_row(seeds: range) -> None:
    for seed in seeds:
        days = play(seed)
        count_days(days)
        assert not days.complaints, story(days)


def test_the_same_seed_is_the_same_story() -> None:
    assert play(3).path == play(3).path
