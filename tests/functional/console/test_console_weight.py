"""How much a page weighs on the wire: the first one with its files, and each after it. And how quickly it is made.

Quickly: by the time that this process computes, which does not grow when other processes work. What a browser waits
for is measured by `python -m bench --only console`.
"""

from __future__ import annotations

import re
from urllib.parse import urljoin

from tests.support.browser import Browser
from tests.support.http import Client

FIRST_BYTES, LATER_BYTES = 60_000, 15_000


def on_the_wire(browser: Browser, path: str) -> tuple[bytes, dict[str, str]]:
    """The body as it is sent, and the headers."""
    status, headers, body = browser._send("GET", path, None, {})
    assert status == 200
    return body, dict(headers)


def test_the_first_page_and_those_after_it_are_light(api: Client, browser: Browser) -> None:
    topic = api.topic(shards=8)
    groups = [topic.group(f"group-{n}") for n in range(4)]
    topic.batch([{"body": {"order": n, "text": "x" * 200}, "keys": [f"order-{n}"]} for n in range(100)])
    groups[0].nack(*groups[0].receive(20), dead_letter=True)
    html = browser.get("/console").html
    files = [urljoin("/console", link) for link in re.findall(r'(?:href|src)="([^"]*static/[^"]*)"', html)]
    assert len(files) == 4, "a style, two scripts, a mark"
    first = len(on_the_wire(browser, "/console")[0])
    for file in files:
        body, headers = on_the_wire(browser, file)
        first += len(body)
        assert "immutable" in headers["Cache-Control"], "it is fetched once"
    assert first <= FIRST_BYTES
    at = f"/console/topics/{topic.name}"
    group = f"{at}/groups/group-0"
    paths = ["/console", at, f"{at}/messages", f"{at}/tail", group, f"{group}/dead-letters", f"{at}/rates"]
    weights = {path: len(on_the_wire(browser, path)[0]) for path in paths}
    assert {path: weight for path, weight in weights.items() if weight > LATER_BYTES} == {}
