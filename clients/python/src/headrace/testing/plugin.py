"""The pytest plugin: the fixtures `headrace_service` and `headrace`. Imports the rest when a test asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .local import LocalHeadrace
    from .service import Service


@pytest.fixture(scope="session")
def headrace_service() -> Iterator[Service]:
    """The address and token of a service for the whole run (with pytest-xdist: for each of its processes)."""
    from .service import ServiceMissing, serving

    try:
        with serving() as service:
            yield service
    except ServiceMissing as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def headrace(headrace_service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHeadrace]:
    """A client of a service with nothing in it, at the machine's time. HEADRACE_URL and HEADRACE_TOKEN name it, for
    the code that is tested."""
    from .local import LocalHeadrace

    monkeypatch.setenv("HEADRACE_URL", headrace_service.url)
    monkeypatch.setenv("HEADRACE_TOKEN", headrace_service.token)
    with LocalHeadrace(headrace_service.url, headrace_service.token) as client:
        client.reset()
        yield client
        client.reset()
