"""The overview of a stage with very many topics: at a bounded cost, the worst first, whatever its name is."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

import app
from chalicelib import settings, wiring
from chalicelib.adapters import dynamo_adapters
from chalicelib.domain.topic import Topic
from chalicelib.wiring import Deps
from local.gateway import Gateway
from tests.support.browser import Browser
from tests.support.http import Client, ShiftingClock

TOPICS = 1_000
pytestmark = pytest.mark.soak


@pytest.fixture
def stage(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, ShiftingClock]]:
    """A stage of its own with so many topics, each with a group, and nothing in them."""
    environment = {
        "HEADRACE_PREFIX": f"many{uuid4().hex[:8]}",
        "HEADRACE_DATA": str(tmp_path_factory.mktemp("d")),
    }
    clock = ShiftingClock()
    deps = Deps(dynamo_adapters(settings.read(environment), clock=clock))
    deps.setup()
    for n in range(TOPICS):
        topic = Topic(f"t-{n:04d}", f"uid{n:05d}", shards=4, created_ms=deps.adapters.clock.now_ms())
        assert deps.adapters.control.put_topic(topic, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring, "deps", lambda: deps)
        yield Client(Gateway(app.app), deps.tokens.ensure_admin(None)), clock


def test_the_worst_of_very_many_topics_comes_first_at_twenty_units_a_look(
    stage: tuple[Client, ShiftingClock],
) -> None:
    api, clock = stage
    last = f"/v1/topics/t-{TOPICS - 1:04d}"
    api.put(f"{last}/groups/mailer", {"from": "earliest"}).expect(201)
    api.post(f"{last}/messages", {"body": 1}).expect(201)
    (message,) = api.post(f"{last}/groups/mailer/receive", {"max": 1}).expect(200)["messages"]
    api.post(f"{last}/groups/mailer/nack", {"receipts": [message["receipt"]], "dead_letter": True}).expect(
        200
    )
    browser = Browser(api.gateway)
    screen = browser.sign_in(str(api.token))
    looks = 1
    while "dead letter" not in screen.text:
        assert looks < 2 * TOPICS, "each topic's turn comes"
        clock.advance(4)
        screen = browser.get("/console")
        assert screen.units <= 20
        looks += 1
    assert f"in t-{TOPICS - 1:04d} / mailer" in screen.text
    rows = screen.html.split("<tr data-line")
    assert f"t-{TOPICS - 1:04d}" in rows[1], "the worst is the first line, too"
    api.post(f"{last}/groups/mailer/dead-letters/redrive").expect(200)
    for _ in range(3):
        clock.advance(4)
        screen = browser.get("/console")
    assert "dead letter" not in screen.text, "what was wrong is looked at again and again"
