"""In a queue, consumers who have equal chances get equal parts: keyless and keyed messages, pulled and pushed."""

from __future__ import annotations

import pytest

from chalicelib.services.consume.claimant import Claimant
from chalicelib.services.push.claims import Claims
from tests.simulation.figures import count
from tests.simulation.seeds import each
from tests.simulation.sharing import play
from tests.simulation.telling import story
from tests.support.planting import Bug

BUGS: dict[str, tuple[int, Bug]] = {
    "a puller that takes all it asks for": (
        14,
        Bug(Claimant, "part", "pull_share.room(round, self.seat, available, now_ms)", "available"),
    ),
    "a delivery that begins with the same consumer": (
        5,
        Bug(Claims, "_in_order", "% len(consumers)", "% 1"),
    ),
}
"""With a seed that sees it."""


@pytest.mark.parametrize("seed", each(1, 400))
def test_equal_consumers_get_equal_parts(seed: int) -> None:
    world, complaints = play(seed)
    count(world)
    assert not complaints, story(world, complaints)


@pytest.mark.soak  # their worlds take long, and the contract tests of sharing see them at once
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_seen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    seed, bug = BUGS[name]
    bug.plant(monkeypatch)
    assert play(seed)[1]
