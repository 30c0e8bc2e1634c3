"""One tenant's trouble, of any kind, delays another tenant's due work by less than 5 s."""

from __future__ import annotations

import pytest

from chalicelib.scheduler.walk import RoundRobin
from tests.simulation.figures import count
from tests.simulation.seeds import each
from tests.simulation.telling import story
from tests.simulation.tenants import TROUBLES, play
from tests.support.planting import Bug, names_of
from tests.support.rarely import rarely

BUGS: dict[str, tuple[str, int, Bug]] = {
    "a sweep that looks at one topic a minute": (
        "a storm of retries",
        0,
        Bug(
            RoundRobin,
            "_run",
            "self._in_order(sorted(names), bookmark.after)",
            "self._in_order(sorted(names), None)[:1]",
        ),
    ),
}
"""With the trouble and the seed in which it shows."""
_RARE = (
    "throttled partitions",
    "a consumer that gives everything back",
    "hundreds of topics",
    "missing bodies",
    "subscribers that ask for time",
)


@pytest.mark.parametrize("seed", each(1, 50))
@pytest.mark.parametrize("trouble", [*(name for name in TROUBLES if name not in _RARE), *rarely(*_RARE)])
def test_one_tenants_trouble_is_not_anothers(trouble: str, seed: int) -> None:
    world, complaints = play(trouble, seed)
    count(world)
    assert not complaints, story(world, complaints)


@pytest.mark.parametrize("name", names_of(BUGS, {"a record that stops its stream"}))
def test_a_planted_bug_is_seen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    trouble, seed, bug = BUGS[name]
    bug.plant(monkeypatch)
    assert play(trouble, seed)[1]
