"""The contract suite: what every form of a port must do, run on memory and on DynamoDB alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from tests.conftest import SOAK
from tests.support.clock import START_MS
from tests.support.stages import Stage, dynamo_stage, memory_stage

_OF_SERVICES = ("tests/contract/services/", "tests/contract/schedules/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test is played in memory. On DynamoDB, too, where it is of a port; of services the first of each file, and
    the others in the soak: what differs between the stores is the ports' alone, and the API's tests have DynamoDB."""
    begun: set[str] = set()
    for item in items:
        file = item.nodeid.partition("::")[0]
        if not item.get_closest_marker("engine") or not file.startswith(_OF_SERVICES):
            continue
        if file in begun and not SOAK:
            item.add_marker(
                pytest.mark.skip(reason="a further test of a service: on the engine in the soak only")
            )
        begun.add(file)


@pytest.fixture(scope="session", params=["memory", pytest.param("dynamodb", marks=pytest.mark.engine)])
def make_stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Stage]]:
    """Makes stages with nothing in them."""
    if request.param == "memory":
        yield memory_stage
        return
    request.getfixturevalue("engine")
    yield lambda: dynamo_stage(f"hr-{uuid4().hex[:8]}", tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def shared(make_stage: Callable[[], Stage]) -> Stage:
    return make_stage()


@pytest.fixture
def stage(make_stage: Callable[[], Stage], shared: Stage) -> Stage:
    """In memory one of its own; on DynamoDB, where that takes long, the suite's common one: factories make names that
    nobody else has. Its clock starts anew."""
    if make_stage is memory_stage:
        return memory_stage()
    shared.clock.at_ms = START_MS
    return shared


@pytest.fixture(scope="session")
def spare(make_stage: Callable[[], Stage]) -> Stage:
    return make_stage()


@pytest.fixture
def empty_stage(make_stage: Callable[[], Stage], spare: Stage) -> Stage:
    """A stage with nothing in it, for lists of everything and for schedules, which see every topic. On DynamoDB one is
    emptied for each test, which takes a tenth of the time that new tables take."""
    if make_stage is memory_stage:
        return memory_stage()
    spare.clear()
    spare.clock.at_ms = START_MS
    return spare
