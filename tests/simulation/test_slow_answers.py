"""All is well although threads of one process read slowly beside each other's changes."""

from __future__ import annotations

import pytest

from chalicelib.services.core.expiring_cache import StoreCall, TtlCache
from tests.simulation.figures import count
from tests.simulation.seeds import blocks
from tests.simulation.slow_answers import play
from tests.simulation.telling import story
from tests.support.planting import Bug

# Staleness of seconds has no effect in most worlds. In one process a long age alone harms nothing: what is changed
# is dropped.
LONG = Bug(TtlCache, "_is_fresh", "max(ages) <= self._max_age_ms", "max(ages) <= 20 * self._max_age_ms")
BUGS: dict[str, tuple[int, tuple[Bug, ...]]] = {
    "a cache that believes the call that ended last": (
        75,
        (
            Bug(StoreCall, "keep", "if not self.is_overtaken:", "if True:"),
            Bug(TtlCache, "replace", "if call.is_overtaken:", "if False:"),
            LONG,
        ),
    ),
}
"""With a seed that sees it. (It does not see `LONG` alone.)"""


@pytest.mark.parametrize("seeds", blocks(5, 5_000), ids=lambda seeds: f"from-{seeds.start}")
@pytest.mark.soak  # slow
def test_no_change_is_hidden_by_what_was_read_before_it(seeds: range) -> None:
    for seed in seeds:
        world, complaints = play(seed)
        count(world)
        assert not complaints, story(world, complaints)


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_seen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    seed, bugs = BUGS[name]
    for bug in bugs:
        bug.plant(monkeypatch)
    assert play(seed)[1]


def test_a_long_age_alone_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    LONG.plant(monkeypatch)
    assert not any(play(seed)[1] for seed, _ in BUGS.values())
