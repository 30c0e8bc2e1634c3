"""Weeks of a stage, seed by seed: rows end, jobs come by, settings change, and nothing that is owed vanishes (I1, I2,
I5, I9, I10, I15). To see a seed again: `HEADRACE_SEED=17 pytest tests/simulation/test_days.py`."""

from __future__ import annotations

import pytest

from chalicelib.services.core.tails import Tails
from chalicelib.store import codec
from tests.simulation.days.plan import BAD_DATA
from tests.simulation.figures import count_days
from tests.simulation.seeds import assert_seen, blocks
from tests.simulation.weeks import play, story
from tests.support.planting import Bug


@pytest.mark.parametrize("seeds", blocks(20, 20_000), ids=lambda seeds: f"from-{seeds.start}")
def test_nothing_that_is_owed_ends_with_its_row(seeds: range) -> None:
    for seed in seeds:
        days = play(seed)
        count_days(days)
        assert not days.complaints, story(days)


@pytest.mark.parametrize("seeds", blocks(8, 5_000), ids=lambda seeds: f"bad-data-from-{seeds.start}")
def test_what_stands_at_a_limit_comes_as_it_was_sent_and_what_cannot_be_read_is_not_lost(
    seeds: range,
) -> None:
    for seed in seeds:
        days = play(seed, BAD_DATA)
        count_days(days)
        assert not days.complaints, story(days)


BUGS = {
    "an append that does without damaged cursors": Bug(
        Tails, "_end_of_claims", "if beside_damage:", "if True:"
    ),
    "a long header that is cut": Bug(
        codec,
        "encode",
        "h=dict(draft.headers),",
        "h={name: value[:1023] for name, value in draft.headers.items()},",
    ),
}
SEEDS = (66, *range(20))
"""Those that see them, a rare one first."""


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_seen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert_seen(BUGS[name], lambda seed: play(seed, BAD_DATA).complaints, SEEDS, monkeypatch)
