"""A subscriber's page: how it is and why, what it answered, a test, its secret, what failed since."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib import wiring
from tests.functional.delivery.receivers import Receiver
from tests.support.background import Background
from tests.support.browser import Browser, Screen
from tests.support.http import Client, Group


@pytest.fixture
def group(api: Client, receiver: Receiver) -> Group:
    """With a subscriber, `shop`."""
    group = api.topic(shards=4, retry={"max_attempts": 1, "ladder": [60], "jitter": 0}).group("mailer")
    api.put(f"{group.path}/consumers/shop", {"url": receiver.url}).expect(201)
    return group


def place(group: Group, rest: str = "") -> str:
    return f"/console/topics/{group.topic.name}/groups/{group.name}/consumers/shop{rest}"


def page(browser: Browser, group: Group, rest: str = "") -> Screen:
    screen = browser.get(place(group, rest))
    assert screen.status == 200, screen.text
    assert screen.units <= 20
    return screen


def test_it_shows_the_latest_attempts_and_leads_to_their_messages(
    browser: Browser, group: Group, background: Background, receiver: Receiver
) -> None:
    group.topic.produce("taken", shard=1)
    background.push(group.topic)
    receiver.status, receiver.body = 500, b"the database is down"
    message = group.topic.produce("failed", shard=2)
    background.push(group.topic)
    browser.get(f"/console/topics/{group.topic.name}/groups/{group.name}")
    screen = browser.follow("shop")
    assert screen.text.count("DEAD") >= 1
    assert "HTTP 500" in screen.text
    assert screen.html.count('class="t-ok"') == screen.html.count('class="t-fail"') == 1
    screen = browser.follow(f"2/{message['offset']}")
    assert screen.url.endswith(message["id"])
    assert "the database is down after 1 attempt · It is not tried again until it is redriven." in screen.text
    assert "failed mailer · attempt 1" in screen.text, "a failed attempt is not called delivered"
    assert browser.get(f"/console/topics/{group.topic.name}/places/2/999").status == 404


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({}, "It is called, and its circuit is closed."),
        ({"state": "PENDING", "why": "no consent"}, "Its owner has not agreed yet"),
        ({"state": "DISABLED", "why": "It answered 410 Gone."}, "It answered 410 Gone."),
        ({"open_ms": 200_000, "times_opened": 3}, "its circuit is open"),
        ({"open_ms": -1, "times_opened": 3}, "lets one message through"),
        ({"failing_ms": 1, "times_opened": 1}, "disables itself"),
    ],
)
def test_it_says_how_the_subscriber_is_and_why(
    browser: Browser, group: Group, change: dict[str, Any], sentence: str
) -> None:
    deps = wiring.deps()
    change = dict(change)
    if (open_ms := change.pop("open_ms", None)) is not None:
        change["open_until_ms"] = deps.adapters.clock.now_ms() + open_ms
    topic = deps.catalog.topic(group.topic.name)
    consumer_group = deps.catalog.group(topic, group.name)
    (row,) = deps.adapters.control.consumers(topic, consumer_group)
    assert (
        deps.adapters.control.put_consumer(topic, consumer_group, replace(row, **change), row) or not change
    )
    deps.catalog.forget(topic, consumer_group)
    assert sentence in page(browser, group).text


def test_a_test_shows_request_and_answer_side_by_side(
    browser: Browser, group: Group, receiver: Receiver
) -> None:
    receiver.status, receiver.body = 500, b"<b>no such shop</b>"
    form = next(form for form in page(browser, group).forms if form.action.endswith("/test"))
    screen = browser.submit(form)
    assert "It would not have taken a message. HTTP 500" in screen.text
    assert "webhook-signature" in screen.text
    assert "<b>no such shop</b>" in screen.text
    assert "<b>no such" not in screen.html
    receiver.status = 200
    form = next(form for form in screen.forms if form.action.endswith("/test"))
    assert "It took the test." in browser.submit(form).text


def test_a_registration_is_changed_and_its_transform_previewed(
    browser: Browser, group: Group, receiver: Receiver
) -> None:
    form = page(browser, group).form("put_consumer")
    given = {"timeout_seconds": "90", "reject_statuses": "404, 422", "headers": "X-Api-Key: k: 1\n\nA: b"}
    browser.submit(form, transform="body.total", **given)
    screen = page(browser, group)
    shop = group.api.get(f"{group.path}/consumers/shop").expect(200)
    assert shop["headers"] == {"X-Api-Key": "•••", "A": "•••"}
    assert (shop["timeout_seconds"], shop["reject_statuses"]) == (90, [404, 422])
    form = replace(screen.form("put_consumer"), action=f"{screen.url}/test")
    previewed = browser.submit(form, transform="{t: body.total}")
    assert "This would be sent, and signed." in previewed.text
    assert '{"t":7}' in previewed.text
    assert receiver.seen == []
    assert "the result is null" in browser.submit(form, message="{}").text
    browser.submit(page(browser, group).form("put_consumer"), no_headers="1")
    shop = group.api.get(f"{group.path}/consumers/shop").expect(200)
    assert (shop["headers"], shop["transform"], shop["timeout_seconds"]) == ({}, "body.total", 90)


def test_who_is_no_admin_sees_no_secret_of_the_url(
    api: Client, stranger: Browser, group: Group, receiver: Receiver
) -> None:
    receiver.body = b"own words"
    stranger.enter(api.new_token("consume")["token"])
    screen = page(stranger, group)
    assert "from=headrace" not in screen.html
    assert f"http://127.0.0.1:{receiver.port}/\u2026" in screen.text
    form = next(form for form in screen.forms if form.action.endswith("/test"))
    result_page = stranger.submit(form)
    assert "from=headrace" not in result_page.html
    assert "own words" not in result_page.html
    assert "from=headrace" not in stranger.get(place(group).rpartition("/consumers")[0]).html
    produce = Browser(stranger.gateway)
    produce.enter(api.new_token("produce")["token"])
    screen = page(produce, group)
    assert all(form.disabled for form in screen.forms if form.fields.get("call") == "rotate_secret")
    assert next(form for form in screen.forms if form.action.endswith("/test")).disabled


def test_what_failed_since_a_moment_is_counted_and_sent_again(
    browser: Browser, group: Group, background: Background, receiver: Receiver
) -> None:
    receiver.status = 489
    for n in range(3):
        group.topic.produce(n)
    background.push(group.topic)
    (form,) = [form for form in page(browser, group).forms if "since" in form.open_fields]
    many = f"/console/topics/{group.topic.name}/groups/{group.name}/many?call={form.fields['call']}"
    assert "There is nothing to do here." in browser.get(f"{many}&since=2100-01-01T00:00").text
    assert "must be a time" in browser.get(f"{many}&since=yesterday").text
    screen = browser.get(f"{many}&since=2020-01-01T00:00")
    assert "3 in all" in screen.text
    receiver.status = 200
    screen = browser.submit(screen.form("redrive", limit="200"))
    assert "3 of 3 done." in screen.text
    assert background.run(group.topic) == {"DONE": 3}
