"""Behind a stage's prefix, as at API Gateway's own address: every link and form leads to where it should."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from urllib.parse import urljoin

import pytest

import app
from chalicelib.console.http import PAGES, Entry
from local.gateway import Gateway
from tests.functional.delivery.receivers import Receiver
from tests.support.background import Background
from tests.support.browser import Browser, Screen
from tests.support.http import Client

PREFIX = "/prod"
_PLACE = re.compile(r'(?:href|src|action|hx-get)="([^"#]*)"')
_SHAPES = {entry.path: re.compile(re.sub(r"{\w+}", "[^/?]+", entry.path) + r"(\?.*)?\Z") for entry in PAGES}


@pytest.fixture
def staged(api: Client) -> Browser:
    """A browser at the stage, signed in."""
    browser = Browser(Gateway(app.app, prefix=PREFIX))
    browser.get(f"{PREFIX}/console")
    screen = browser.post(f"{PREFIX}/console/sign-in", {"token": str(api.token), "back": ""})
    assert screen.url == f"{PREFIX}/console"
    return browser


@pytest.fixture
def topic(api: Client, background: Background, receiver: Receiver) -> str:
    """A topic with something on each of its pages."""
    topic = api.topic(shards=1, retry={"max_attempts": 1})
    pushed = topic.group("shop")
    api.put(f"{pushed.path}/consumers/hook", {"url": receiver.url}).expect(201)
    receiver.status = 489
    topic.produce({"order": 1})
    background.push(topic)
    topic.produce({"order": 2}, delay_seconds=600)
    return topic.name


def places(screen: Screen) -> Iterator[str]:
    """Where the page's links, files and forms lead, as a browser reads them."""
    for found in _PLACE.findall(screen.html):
        place = urljoin(screen.url, unescape(found))
        assert place.startswith(f"{PREFIX}/"), f"{screen.url} leads out of the stage: {found}"
        yield place.removeprefix(PREFIX)


def entry_of(place: str) -> Entry | None:
    """Who answers there: of two shapes that fit, the one with fewer parameters."""
    fitting = [entry for entry in PAGES if _SHAPES[entry.path].match(place)]
    return min(fitting, key=lambda entry: entry.path.count("{"), default=None)


def test_every_page_is_reached_by_links_alone(staged: Browser, topic: str) -> None:
    reached: set[str] = set()
    waiting = ["/console", f"/console/find?q={topic}", f"/console/topics/{topic}"]
    seen = set(waiting)
    while waiting:
        place = waiting.pop()
        entry = entry_of(place)
        assert entry, f"nothing answers at {place}"
        if entry.path in reached and place not in seen:
            continue
        reached.add(entry.path)
        if entry.method == "POST" and not any(e.method == "GET" and e.path == entry.path for e in PAGES):
            continue
        screen = staged.get(PREFIX + place)
        assert screen.status == 200, (place, screen.text)
        if "html" not in screen.headers["Content-Type"]:
            continue
        for each in places(screen):
            is_new = each not in seen and not each.startswith(("/docs", "/v1/"))
            of_ours = f"/topics/{topic}" in each or "/topics/" not in each
            known = entry_of(each)
            if is_new and of_ours and (known is None or known.path not in reached):
                seen.add(each)
                waiting.append(each)
    everything = {entry.path for entry in PAGES if entry.method == "GET"}
    assert everything - reached == {"/console/sign-in"}, "which who is signed in is led to by none"


def test_what_is_done_comes_back_to_its_page(staged: Browser, topic: str) -> None:
    screen = staged.get(f"{PREFIX}/console/topics/{topic}")
    screen = staged.submit(screen.form("pause_group"))
    assert screen.url.startswith(f"{PREFIX}/console/topics/{topic}?did=pause_group")
    assert "http://headrace.test/prod/v1/topics" in screen.html, "as curl"
