"""Weeks of a stage, seed by seed: rows end, jobs come by, settings change, and nothing that is owed vanishes (I1, I2,
I5, I9, I10, I15). To see a seed again: `HEADRACE_SEED=17 pytest tests/simulation/test_days.py`."""

from __future__ import annotations

import pytest

from chalicelib.store import codec
from tests.simulation.days.plan import LIMITS
from tests.simulation.figures import count_days
from tests.simulation.seeds import assert_seen, blocks
from tests.simulation.weeks import play, story
from tests.support.planting import Bug


@pytest.mark.parametrize("seeds", blocks(14, 20_000), ids=lambda seeds: f"from-{seeds.start}")
def test_nothing_that_is_owed_ends_with_its_row(seeds: range) -> None:
    for seed in seeds:
        days = play(seed)
        count_days(days)
        assert not days.complaints, story(days)


@pytest.mark.parametrize("seeds", blocks(5, 5_000), ids=lambda seeds: f"limits-from-{seeds.start}")
@pytest.mark.soak  # slow
def test_what_stands_at_a_limit_comes_as_it_was_sent(seeds: range) -> None:
    for seed in seeds:
        days = play(seed, LIMITS)
        count_days(days)
        assert not days.complaints, story(days)


BUGS = {
    "a long header that is cut": Bug(
        codec,
        "encode",
        "= dict(draft.headers)",
        "= {name: value[:1023] for name, value in draft.headers.items()}",
    ),
}
SEEDS = range(20)
"""Those that see them."""


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_seen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert_seen(BUGS[name], lambda seed: play(seed, LIMITS).complaints, SEEDS, monkeypatch)
