"""One set of tables for all crash tests of a session; every case has a topic of its own."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.support.clock import ManualClock
from tests.support.faults import without_backoff
from tests.support.flows import SharedTables, chance


@pytest.fixture(scope="session")
def tables(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedTables]:
    """Tables of this test only."""
    tables = SharedTables(f"crash-{uuid4().hex[:8]}", tmp_path_factory.mktemp("blobs"))
    deps = tables.deps(ManualClock(), chance("tables"))
    deps.setup()
    assert deps.signing_key  # made once for the tables, before any case counts its calls
    yield tables
    tables.remove()


@pytest.fixture(autouse=True)
def _no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    without_backoff(monkeypatch)
