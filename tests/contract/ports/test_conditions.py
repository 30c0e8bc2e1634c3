"""Each condition of the store: another write came first, and both stores refuse the same.

Each scene plays one race by hand. With one condition dropped or weakened, one of them fails
(`test_planted_conditions.py`).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.contract.ports.conditions import control, cursors, dead_letters, jobs, log, timers, transactions
from tests.support.stages import Stage

SCENES: dict[str, Callable[[Stage], None]] = {
    scene.__name__: scene
    for port in (log, cursors, dead_letters, timers, transactions, control, jobs)
    for scene in port.SCENES
}


@pytest.fixture(scope="module")
def stage(make_stage: Callable[[], Stage]) -> Stage:
    """Of its own: other tests would find the timers that are left."""
    return make_stage()


@pytest.mark.parametrize("name", SCENES)
def test_whoever_comes_second_changes_nothing(stage: Stage, name: str) -> None:
    SCENES[name](stage)
