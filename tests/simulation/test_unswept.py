"""Nothing that is due and may be done waits for a sweep."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chalicelib.services.consume.claim import Claimer
from chalicelib.services.consume.lease_settlement import LeaseSettlement
from chalicelib.services.core.wake import Waker
from chalicelib.services.push.run import DispatchRun
from tests.simulation.figures import count
from tests.simulation.seeds import blocks
from tests.simulation.telling import story
from tests.simulation.unswept import play, play_beside_visitors, play_with_few_slots
from tests.simulation.world import World
from tests.support.planting import Bug

BUGS: dict[str, tuple[Callable[[int], tuple[World, list[str]]], tuple[int, ...], *tuple[Bug, ...]]] = {
    "what waits in its place, and nobody comes back": (
        play_beside_visitors,
        (22, 50, 116, 188, 206, 167),
        Bug(Claimer, "dues_ms", "*(span.due_ms for span in cursor.waiting), ", ""),
    ),
    "a mover that is not woken": (play, (0,), Bug(Waker, "wake_movers", "self.wake_at(", "list(")),
    "an unpaused group that nobody wakes": (
        play,
        (3,),
        Bug(Waker, "wake_group", "self.start(task, News(changed=True))", "pass"),
        # otherwise a second wake-up makes up for it after seconds
        Bug(Waker, "wake_after_resumption", "self._wake_again(", "list("),
    ),
    "what who pulls returns, and nobody is woken for it": (
        play_beside_visitors,
        (12, 18, 22, 29, 14),
        Bug(Waker, "wake_beside_puller", "self.start(task, News(changed=True))", "pass"),
    ),
    "a lease that is made shorter, and nobody is woken for its end": (
        play_beside_visitors,
        (22, 12, 18, 59, 73, 14),
        Bug(LeaseSettlement, "_extend", "if until_ms < lease.deadline_ms:", "if False:"),
    ),
    "a run that never looks beyond where it was told to": (
        play_with_few_slots,
        (0,),
        Bug(
            DispatchRun,
            "_sources",
            "() if self._capacity.was_crowded else self._partitions",
            "self._partitions",
        ),
    ),
}
"""With the worlds, and the seeds that may see it: which one does changes with the order of calls."""


@pytest.mark.parametrize("play_world", [play, play_with_few_slots, play_beside_visitors])
@pytest.mark.parametrize("seeds", blocks(4, 20_000), ids=lambda seeds: f"from-{seeds.start}")
def test_nothing_due_waits_for_a_sweep(
    play_world: Callable[[int], tuple[World, list[str]]], seeds: range
) -> None:
    for seed in seeds:
        world, complaints = play_world(seed)
        count(world)
        assert not complaints, story(world, complaints)


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_seen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    play_world, seeds, *bugs = BUGS[name]
    for bug in bugs:
        bug.plant(monkeypatch)
    assert any(play_world(seed)[1] for seed in (*seeds, *range(30)))
