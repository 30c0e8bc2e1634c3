"""An empty stage for each test: schedules see every topic of a stage."""

from __future__ import annotations

import pytest

from tests.support.stages import Stage


@pytest.fixture
def stage(empty_stage: Stage) -> Stage:
    return empty_stage
