"""The overview of a stage with very many topics: at a bounded cost, the worst first, with any name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import pytest

import app
from chalicelib import settings, wiring
from chalicelib.adapters import dynamo_adapters
from chalicelib.domain.topic import Topic
from chalicelib.wiring import Deps
from local.gateway import Gateway
from tests.support.browser import Browser, Screen
from tests.support.http import Client, ShiftingClock

MANY, A_PAGE_OF_UNITS_MORE, A_PAGE_MORE = 1_000, 500, 40
MINUTE = 61


@dataclass
class Stage:
    """One of its own, with so many topics, and a browser that is signed in."""

    deps: Deps
    clock: ShiftingClock
    api: Client
    topics: int

    @property
    def last(self) -> str:
        """The name of the topic that comes last."""
        return f"t-{self.topics - 1:04d}"

    def bury(self, topic: str = "") -> str:
        """A message of a topic dies, of the last one unless another is named; the path of its group."""
        topic = topic or self.last
        group = f"/v1/topics/{topic}/groups/desk"
        self.api.put(group, {"from": "latest"}).expect(201)
        self.api.post(f"/v1/topics/{topic}/messages", {"body": 1}).expect(201)
        (message,) = self.api.post(f"{group}/receive", {"max": 1}).expect(200)["messages"]
        bury = {"receipts": [message["receipt"]], "dead_letter": True}
        self.api.post(f"{group}/nack", bury).expect(200)
        self.deps.marker.note_topics_of([f"{topic}:uid/0"])
        return group

    def pass_minute(self) -> None:
        """A minute later, what the sweep does beside sweeping."""
        self.clock.advance(MINUTE)
        each_minute = self.deps.adapters.marks.each_minute()
        self.deps.meter_reader.run_once(each_minute.moving, troubled_topics=each_minute.troubled)

    def look(self, browser: Browser) -> Screen:
        """The overview, some seconds after the last look."""
        self.clock.advance(4)
        screen = browser.get("/console")
        assert screen.units <= 20
        return screen


@pytest.fixture
def stage(
    engine: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Stage]:
    """A stage with the topics that the test wants."""
    environment = {
        "HEADRACE_PREFIX": f"many{uuid4().hex[:8]}",
        "HEADRACE_DATA": str(tmp_path_factory.mktemp("d")),
    }
    clock = ShiftingClock()
    deps = Deps(dynamo_adapters(settings.read(environment), clock=clock))
    deps.setup()
    for n in range(request.param):
        topic = Topic(f"t-{n:04d}", f"uid{n:05d}", shards=4, created_ms=deps.adapters.clock.now_ms())
        assert deps.adapters.control.put_topic(topic, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring, "deps", lambda: deps)
        yield Stage(deps, clock, Client(Gateway(app.app), deps.tokens.ensure_admin(None)), request.param)


@pytest.mark.parametrize("stage", [A_PAGE_MORE], indirect=True)
def test_the_worst_is_first_at_the_first_look_and_goes_when_it_is_mended(stage: Stage) -> None:
    group = stage.bury()
    stage.pass_minute()
    browser = Browser(stage.api.gateway)
    screen = browser.sign_in(str(stage.api.token))
    assert f"{stage.last} / desk : 1 dead letter" in screen.text
    assert stage.last in screen.html.split("<tr data-line")[1], "its line is the first, too"
    stage.api.post(f"{group}/dead-letters/redrive").expect(200)
    (again,) = stage.api.post(f"{group}/receive", {"max": 1}).expect(200)["messages"]
    stage.api.post(f"{group}/ack", {"receipts": [again["receipt"]]}).expect(200)
    stage.look(browser)
    assert "dead letter" not in stage.look(browser).text, "every other look is for the topics of other pages"
    assert stage.last in stage.deps.adapters.marks.each_minute().moving, "it is to be noted anew"
    stage.pass_minute()
    stage.pass_minute()
    assert stage.deps.adapters.marks.worst(9) == {}


@pytest.mark.parametrize("stage", [A_PAGE_OF_UNITS_MORE], indirect=True)
def test_pages_that_end_among_foreign_topics_name_none_and_lead_on(stage: Stage) -> None:
    stage.api.put("/v1/topics/z-mine").expect(201)
    stage.api.post("/v1/topics/z-mine/messages", {"body": 1, "keys": ["k"]}).expect(201)
    browser = Browser(stage.api.gateway)
    browser.sign_in(stage.api.new_token(topics=["*-mine"])["token"])
    for page, further in (("/console", "More topics"), ("/console/find?q=k", "Look further")):
        screen, pages = browser.get(page), 1
        while "z-mine" not in screen.text:
            assert not re.search(r"t-\d{4}", screen.html)
            assert screen.units <= 20
            screen, pages = browser.follow(further), pages + 1
        assert 1 < pages < 5
