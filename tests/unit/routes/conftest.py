"""Calls of the API on a store in memory, with a clock that stands still."""

from __future__ import annotations

import pytest

import app
from chalicelib import wiring
from chalicelib.wiring import Deps
from local.gateway import Gateway
from tests.support.clock import Inline, ManualClock, SeededRandom
from tests.support.embedded import embedded_adapters
from tests.support.http import Client, Topic
from tests.support.push import Inbox, Subscribers
from tests.unit.routes.calls import StartedJobs


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def inbox() -> Inbox:
    """What was woken."""
    return Inbox()


@pytest.fixture
def jobs() -> StartedJobs:
    return StartedJobs()


@pytest.fixture
def deps(clock: ManualClock, inbox: Inbox, jobs: StartedJobs, monkeypatch: pytest.MonkeyPatch) -> Deps:
    adapters = embedded_adapters(
        clock, SeededRandom(), lambda: Subscribers(clock), inbox, lambda: Inline(), jobs
    )
    deps = Deps(adapters)
    monkeypatch.setattr(wiring, "deps", lambda: deps)
    return deps


@pytest.fixture
def api(deps: Deps) -> Client:
    """A client with an admin token."""
    return Client(Gateway(app.app), deps.tokens.ensure_admin(None))


@pytest.fixture
def topic(api: Client) -> Topic:
    return api.topic()
