"""`make pictures`: six pages of the console, light and dark, as docs/pictures shows them."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.browser import pages
from tests.browser.chromium import found, signed_in
from tests.browser.scene import go_on, play
from tests.support.local_service import serving

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"
SHOWN = ("overview", "topic", "message", "group", "dead-letters", "messages")
MINUTES = 8
"""Of work before the pictures."""


def main() -> int:
    """Take the pictures. 1, with what to install, where that cannot be done."""
    path = found()
    if path is None:
        print(
            "There is no Chromium: apt-get install chromium, or set HEADRACE_CHROMIUM to one.",
            file=sys.stderr,
        )
        return 1
    from playwright.sync_api import sync_playwright

    FOLDER.mkdir(exist_ok=True)
    with serving() as service, sync_playwright() as driver:
        paths = pages.paths(play(service))
        go_on(service, MINUTES)
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            page = signed_in(browser, service, color_scheme=scheme, viewport={"width": 1120, "height": 700})
            for name in SHOWN:
                page.goto(f"{service.url}/{paths[name]}")
                file = FOLDER / f"{name}-{scheme}.png"
                page.screenshot(path=file)
                print(f"{file.relative_to(Path.cwd())}  {file.stat().st_size / 1000:.0f} kB")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
