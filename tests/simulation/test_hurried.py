"""Jobs that never have time for all topics come by each of them, and by all of it (I9, I10). To see a seed again:
`HEADRACE_SEED=17 pytest tests/simulation/test_hurried.py`."""

from __future__ import annotations

import pytest

from chalicelib.scheduler.walk import Stretch, Walk
from tests.simulation.figures import count_hurry
from tests.simulation.hurried import play, story
from tests.simulation.seeds import assert_seen, blocks
from tests.support.planting import Bug, names_of

BUGS = {
    "a topic in which time ended, counted as visited": Bug(
        Stretch, "visit", "if self.finished or self.last is None:", "if True:"
    ),
    "a topic that takes all the time, first in each run": Bug(
        Stretch, "visit", "if self.finished or self.last is None:", "if self.finished:"
    ),
    "a walk that passes the topic in which it ended": Bug(Walk, "run", "way.goes_back()", "pass"),
}
SEEDS = (1, 8, 7, *range(30))  # those that see them today go first


@pytest.mark.parametrize("seeds", blocks(3, 5_000), ids=lambda seeds: f"from-{seeds.start}")
def test_every_topic_has_its_turn_however_little_time_a_run_has(seeds: range) -> None:
    for seed in seeds:
        hurry = play(seed)
        count_hurry(hurry)
        assert not hurry.complaints, story(hurry)


@pytest.mark.parametrize("name", names_of(BUGS, {"a walk that passes the topic in which it ended"}))
def test_a_planted_bug_is_seen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert_seen(BUGS[name], lambda seed: play(seed).complaints, SEEDS, monkeypatch)
