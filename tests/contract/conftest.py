"""The contract suite. What the store promises (`ports`) is played on the embedded engine, row by row, and on DynamoDB
Local, both asked by boto3; what stands on it, on the embedded engine alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.support.clock import START_MS
from tests.support.stages import Stage, dynamo_stage, embedded_stage


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test of the store that has a stage is played on both engines."""
    if "make_stage" not in metafunc.fixturenames:
        return
    engines: list[Any] = ["direct"]
    if Path(__file__).parent / "ports" in metafunc.definition.path.parents:
        engines = ["embedded"]
        if "planted" not in metafunc.module.__name__:
            engines.append(pytest.param("dynamodb-local", marks=pytest.mark.oracle))
    metafunc.parametrize("make_stage", engines, indirect=True, scope="session")


@pytest.fixture(scope="session")
def make_stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Stage]]:
    """Makes stages with nothing in them."""
    if request.param == "direct":
        yield embedded_stage
        return
    is_ours = request.param == "embedded"
    endpoint = request.getfixturevalue("engine" if is_ours else "oracle")

    def stage() -> Stage:
        stage = dynamo_stage(f"hr-{uuid4().hex[:8]}", tmp_path_factory.mktemp("data"), endpoint)
        if is_ours:
            events = stage.adapters.log._dynamo.client.meta.events
            events.register("provide-client-params.dynamodb.Query", _page_by_page)
        return stage

    yield stage


def _page_by_page(params: dict[str, Any], **_: Any) -> None:
    """Of what may be read to its end, each page is one row: a loop that forgets the second one is seen."""
    params.setdefault("Limit", 1)


@pytest.fixture(scope="session")
def shared(make_stage: Callable[[], Stage]) -> Stage:
    return make_stage()


@pytest.fixture
def stage(make_stage: Callable[[], Stage], shared: Stage) -> Stage:
    """A stage of its own; in the store's suite the shared one, where factories make unique names. Its clock starts
    again."""
    if make_stage is embedded_stage:
        return embedded_stage()
    shared.clock.at_ms = START_MS
    return shared


@pytest.fixture(scope="session")
def spare(make_stage: Callable[[], Stage]) -> Stage:
    return make_stage()


@pytest.fixture
def empty_stage(make_stage: Callable[[], Stage], spare: Stage) -> Stage:
    """A stage with nothing in it, for lists of everything and for schedules, which see every topic."""
    if make_stage is embedded_stage:
        return embedded_stage()
    spare.clear()
    spare.clock.at_ms = START_MS
    return spare
