"""Nothing that is due and may be done waits for a sweep."""

from __future__ import annotations

import pytest

from chalicelib.services.consume.claim import Claimer
from chalicelib.services.core.wake import Waker
from tests.simulation.figures import count
from tests.simulation.seeds import blocks
from tests.simulation.telling import story
from tests.simulation.unswept import play
from tests.support.planting import Bug

BUGS: dict[str, tuple[int, Bug]] = {
    "what waits in its place, and nobody comes back": (
        83,
        Bug(Claimer, "dues_ms", "*(span.due_ms for span in cursor.waiting), ", ""),
    ),
    "a mover that is not woken": (0, Bug(Waker, "wake_movers", "if asleep and", "if False and")),
    "an unpaused group that nobody wakes": (
        3,
        Bug(Waker, "wake_group", "self.start(task, News(changed=True))", "pass"),
    ),
}
"""With a seed that sees it."""


@pytest.mark.parametrize("seeds", blocks(24, 20_000), ids=lambda seeds: f"from-{seeds.start}")
def test_nothing_due_waits_for_a_sweep(seeds: range) -> None:
    for seed in seeds:
        world, complaints = play(seed)
        count(world)
        assert not complaints, story(world, complaints)


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_seen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    seed, bug = BUGS[name]
    bug.plant(monkeypatch)
    assert play(seed)[1]
