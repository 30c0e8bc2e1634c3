"""The whole service in this process, on a real engine, with tables of its own and a clock that tests move."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import app
from chalicelib import settings, wiring
from local.gateway import Gateway
from tests.support.http import Client, ShiftingClock


@pytest.fixture(scope="session")
def clock() -> ShiftingClock:
    return ShiftingClock()


@pytest.fixture(scope="session")
def api(engine: Any, clock: ShiftingClock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client with an admin token."""
    environment = {
        "HEADRACE_PREFIX": f"api{uuid.uuid4().hex[:8]}",
        "HEADRACE_DATA": str(tmp_path_factory.mktemp("data")),
    }
    deps = wiring.Deps(wiring.dynamo_adapters(settings.read(environment), clock=clock))
    deps.setup()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring, "deps", lambda: deps)
        yield Client(Gateway(app.app), deps.tokens.ensure_admin(None))
