"""A real browser over a service in memory. Where there is none, the tests say so and are skipped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.chromium import PATIENCE_MS, found
from tests.browser.scene import play
from tests.support.local_service import LocalService, serving

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: make test")


@pytest.fixture(scope="session")
def service() -> Iterator[tuple[LocalService, str]]:
    """A service with the scene, and the id of a message that waits for its next attempt."""
    with serving() as service:
        yield service, play(service)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Closed with its pages after each file: they would go on asking the service."""
    path = found()
    if path is None:
        pytest.skip("There is no Chromium: apt-get install chromium, or set HEADRACE_CHROMIUM to one.")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"], timeout=PATIENCE_MS)
        yield browser
        browser.close()
