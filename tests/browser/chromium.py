"""Where the machine's Chromium is, and a page that is signed in."""

from __future__ import annotations

import os
import shutil
from typing import Any

from tests.support.local_service import LocalService

PATIENCE_MS = 120_000  # Playwright's own 30 s are not enough for a machine with much else to do
_NAMES = ("chromium", "chromium-browser", "google-chrome")


def found() -> str | None:
    """The path of HEADRACE_CHROMIUM or of the first Chromium there is."""
    name_of_file = os.environ.get("HEADRACE_CHROMIUM")
    return name_of_file or next((path for name in _NAMES if (path := shutil.which(name))), None)


def signed_in(browser: Any, service: LocalService, **options: Any) -> Any:
    """A page in a window of its own, on the overview. What its console complains of is in `page.complaints`. Wait for
    locators: `wait_for_function` looks again by `eval`, which the pages' policy forbids."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.complaints = []
    page.on("console", lambda message: _note(page, message))
    page.goto(f"{service.url}/console")
    page.fill("input[name=token]", service.token)
    click(page, "button.primary")
    page.wait_for_selector("table, .headline")
    return page


def click(page: Any, selector: str) -> None:
    """Click on what leads to a page, and wait until all of that is there."""
    with page.expect_navigation():
        page.click(selector)


def _note(page: Any, message: Any) -> None:
    if message.type in ("error", "warning"):
        page.complaints.append(message.text)
