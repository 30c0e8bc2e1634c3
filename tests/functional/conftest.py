"""The whole service in this process, on a real engine, with tables of its own and a clock that tests move.

Its functions have the roles that they have on AWS. Nothing runs by itself, and nothing is called outside this machine:
names resolve to nothing. The front door's tests have one in memory.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import app
from chalicelib import settings, wiring
from chalicelib.adapters import dynamo_adapters
from chalicelib.services.manage.tokens import SCOPES
from local.gateway import Gateway
from local.key_file import FileCipher
from tests.functional.delivery.receivers import Receiver, http_receiver
from tests.support.background import Background
from tests.support.clock import SeededRandom
from tests.support.embedded import embedded_adapters
from tests.support.http import Client, ShiftingClock
from tests.support.push import Inbox
from tests.support.roles import Guard, guarded
from tests.support.senders import sending
from tests.support.stages import drop_all

FUNCTIONS = Path(__file__).parents[2] / "examples" / "functions.py"
ORIGIN = "headrace.local"


@pytest.fixture(scope="session", autouse=True)
def guard() -> Iterator[Guard]:
    """What the functions' roles allow, enforced on every client made from here on."""
    with guarded(Guard()) as guard:
        yield guard


@pytest.fixture(autouse=True)
def _nothing_is_denied(guard: Guard) -> Iterator[None]:
    """A denial may be swallowed, as any fault of the store's may: so it is looked for."""
    before = len(guard.denied)
    yield
    assert guard.denied[before:] == []


@pytest.fixture(scope="session")
def clock() -> ShiftingClock:
    return ShiftingClock()


@pytest.fixture(autouse=True)
def _the_clock_is_not_behind(request: pytest.FixtureRequest) -> None:
    if "services" in request.fixturenames:
        request.getfixturevalue("services").clock.catch_up()


@pytest.fixture(scope="session")
def services(
    engine: Any, clock: ShiftingClock, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Background]:
    """The services, and what runs beside HTTP."""
    environment = {
        "HEADRACE_PREFIX": f"api{uuid.uuid4().hex[:8]}",
        "HEADRACE_DATA": str(tmp_path_factory.mktemp("data")),
    }
    with sending(clock, ORIGIN, FUNCTIONS) as sender:
        inbox = Inbox()
        cipher = FileCipher(Path(environment["HEADRACE_DATA"]) / "key")
        adapters = dynamo_adapters(settings.read(environment), clock=clock, invoker=inbox, cipher=cipher)
        deps = wiring.Deps(replace(adapters, sender=lambda: sender))
        deps.setup()
        yield Background(deps, clock, inbox)


@pytest.fixture(scope="session")
def services_in_memory(clock: ShiftingClock) -> Iterator[Background]:
    """The same on an engine of its own, asked without boto3."""
    with sending(clock, ORIGIN, FUNCTIONS) as sender:
        inbox = Inbox()
        deps = wiring.Deps(embedded_adapters(clock, SeededRandom("services"), lambda: sender, inbox))
        deps.setup()
        yield Background(deps, clock, inbox)


@pytest.fixture(scope="module")
def api(services: Background) -> Iterator[Client]:
    """A client with an admin token."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring, "deps", lambda: services.deps)
        _, token = services.deps.tokens.create("admin of the tests", SCOPES)
        yield Client(Gateway(app.app), token)


@pytest.fixture
def empty_api(clock: ShiftingClock) -> Iterator[Client]:
    """A client of a stage of its own, in memory: for lists of all topics, of which other tests make hundreds."""
    with sending(clock, ORIGIN, FUNCTIONS) as sender, pytest.MonkeyPatch.context() as patch:
        deps = wiring.Deps(embedded_adapters(clock, SeededRandom("empty"), lambda: sender, Inbox()))
        deps.setup()
        patch.setattr(wiring, "deps", lambda: deps)
        yield Client(Gateway(app.app), deps.tokens.ensure_admin(None))


@pytest.fixture
def background(services: Background) -> Background:
    """What runs beside HTTP, with nothing left over from other tests."""
    services.inbox.asked.clear()
    return services


@pytest.fixture
def no_timers(services: Background) -> None:
    """No timers of other tests: those of all topics lie together, and an answer looks through a bounded number."""
    drop_all(services.deps.adapters.timers)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A subscriber on this machine."""
    with http_receiver() as receiver:
        yield receiver
