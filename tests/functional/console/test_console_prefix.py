"""Behind a stage's prefix, as at API Gateway's own address: every link and form leads to where it should."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import app
from local.gateway import Gateway
from tests.functional.delivery.receivers import Receiver
from tests.support.background import Background
from tests.support.browser import Browser
from tests.support.http import Client
from tests.support.walk import unreached_paths

PREFIX = "/prod"


@pytest.fixture
def stage_browser(api: Client) -> Browser:
    """A browser at the stage, signed in."""
    browser = Browser(Gateway(app.app, prefix=PREFIX))
    browser.get(f"{PREFIX}/console")
    screen = browser.post(f"{PREFIX}/console/sign-in", {"token": str(api.token), "back": ""})
    assert screen.url == f"{PREFIX}/console"
    return browser


@pytest.fixture
def topic(api: Client, background: Background, receiver: Receiver) -> Iterator[str]:
    """A topic with something on each of its pages."""
    topic = api.topic(shards=1, retry={"max_attempts": 1})
    group = topic.group("shop")
    api.put(f"{group.path}/consumers/hook", {"url": receiver.url}).expect(201)
    receiver.status = 489
    topic.produce({"order": 1})
    background.push(topic)
    topic.produce({"order": 2}, delay_seconds=600)
    schedule = {"topic": topic.name, "cron": "@yearly", "message": {"body": 3}}
    api.put(f"/v1/schedules/{topic.name}", schedule).expect(201)
    yield topic.name
    api.delete(f"/v1/schedules/{topic.name}").expect(204)


def test_every_page_is_reached_by_links_alone(stage_browser: Browser, topic: str) -> None:
    assert unreached_paths(stage_browser, PREFIX, topic) == set()


def test_what_is_done_comes_back_to_its_page(stage_browser: Browser, topic: str) -> None:
    screen = stage_browser.get(f"{PREFIX}/console/topics/{topic}")
    screen = stage_browser.submit(screen.form("pause_group"))
    assert screen.url.startswith(f"{PREFIX}/console/topics/{topic}?did=pause_group")
    assert "http://headrace.test/prod/v1/topics" in screen.html, "as curl"
