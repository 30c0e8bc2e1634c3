"""A walk over the console's pages by their links alone, behind a prefix: each link and form has to lead to a page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import unescape
from urllib.parse import urljoin

from chalicelib.console.pages import PAGES, Entry
from tests.support.browser import Browser, Screen

_PLACE = re.compile(r'(?:href|src|action|hx-get)="([^"#]*)"')
_SHAPES = {entry.path: re.compile(re.sub(r"{\w+}", "[^/?]+", entry.path) + r"(\?.*)?\Z") for entry in PAGES}


def unreached_paths(browser: Browser, prefix: str, topic: str, begin: Iterable[str] = ()) -> set[str]:
    """The paths of the pages that no link leads to from the overview, a topic's page or where to `begin`. Of each kind
    one is opened. The browser is signed in. AssertionError: a page fails, or a link leads out of the stage."""
    paths: set[str] = set()
    queue = ["/console", f"/console/find?q={topic}", f"/console/topics/{topic}", *begin]
    queued = set(queue)
    while queue:
        place = queue.pop()
        entry = _entry_of(place)
        assert entry, f"nothing answers at {place}"
        paths.add(entry.path)
        if entry.method == "POST" and not any(e.method == "GET" and e.path == entry.path for e in PAGES):
            continue
        screen = browser.get(prefix + place)
        assert screen.status == 200, (place, screen.text)
        if "html" not in screen.headers["Content-Type"]:
            continue
        for each in _places(screen, prefix):
            is_new = each not in queued and not each.startswith(("/docs", "/v1/"))
            of_ours = f"/topics/{topic}" in each or "/topics/" not in each
            page_entry = _entry_of(each)
            if is_new and of_ours and (page_entry is None or page_entry.path not in paths):
                queued.add(each)
                queue.append(each)
    everything = {entry.path for entry in PAGES if entry.method == "GET"}
    return everything - paths - {"/console/sign-in"}  # to which who is signed in is led by none


def _places(screen: Screen, prefix: str) -> Iterator[str]:
    """Where the page's links, files and forms lead, as a browser reads them."""
    for link in _PLACE.findall(screen.html):
        place = urljoin(screen.url, unescape(link))
        assert place.startswith(f"{prefix}/"), f"{screen.url} leads out of the stage: {link}"
        yield place.removeprefix(prefix)


def _entry_of(place: str) -> Entry | None:
    """Who answers there: of two shapes that fit, the one with fewer parameters."""
    matches = [entry for entry in PAGES if _SHAPES[entry.path].match(place)]
    return min(matches, key=lambda entry: entry.path.count("{"), default=None)
