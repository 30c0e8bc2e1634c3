"""Each test plays in virtual time, and reports at the end what was played."""

from __future__ import annotations

import pytest

from tests.simulation.figures import Figures
from tests.simulation.threads import make_virtual


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Figures())


@pytest.fixture(autouse=True)
def _virtual_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    make_virtual(monkeypatch)
