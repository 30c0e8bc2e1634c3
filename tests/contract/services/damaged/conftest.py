"""A stage for each file alone: schedules see every topic of a stage."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.clock import START_MS
from tests.support.stages import Stage


@pytest.fixture(scope="module")
def own(make_stage: Callable[[], Stage]) -> Stage:
    """A stage for this file alone: schedules see every topic of a stage."""
    return make_stage()


@pytest.fixture
def stage(own: Stage) -> Stage:
    own.clock.at_ms = START_MS
    return own
