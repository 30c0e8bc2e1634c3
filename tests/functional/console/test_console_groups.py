"""A group's page: leases, consumers and why, which keys hold messages back; a seek, previewed; its end."""

from __future__ import annotations

import random
import re

import pytest

from tests.functional.delivery.receivers import Receiver
from tests.support.browser import Browser, Screen
from tests.support.http import Client, Group, ShiftingClock


@pytest.fixture
def group(api: Client) -> Group:
    """Ten messages: four are settled, three leased by w1."""
    group = api.topic(shards=1).group("mailer")
    group.topic.batch([{"body": n} for n in range(10)])
    group.register("w1")
    group.ack(*group.receive(4, consumer="w1"))
    group.receive(3, consumer="w1")
    return group


def page(browser: Browser, group: Group, rest: str = "") -> Screen:
    screen = browser.get(f"/console/topics/{group.topic.name}/groups/{group.name}{rest}")
    assert screen.status == 200, screen.text
    assert screen.units <= 20
    return screen


def test_leases_have_owner_and_deadline(browser: Browser, group: Group) -> None:
    text = page(browser, group).text
    assert "4\u20136 3 1 w1 in " in text


def test_consumers_say_what_they_have_and_why(browser: Browser, group: Group) -> None:
    text = page(browser, group).text
    assert "w1 ACTIVE" in text
    assert "1 of 1" in text
    assert "Shard s belongs to the consumer whose rank is s mod 1" in text
    screen = browser.submit(page(browser, group).form("delete_consumer"))
    assert "Removed; its shards go to the others." in screen.text


def test_a_subscriber_is_registered_and_its_secret_shown_once(
    browser: Browser, group: Group, receiver: Receiver
) -> None:
    screen = browser.submit(page(browser, group).form("put_consumer"), consumer="shop", url=receiver.url)
    assert "whsec_" in screen.text
    screen = page(browser, group)
    assert "whsec_" not in screen.html
    assert "closed" in screen.text, "its circuit"
    assert "whsec_" in browser.submit(screen.form("rotate_secret")).text


def test_a_broadcasts_consumer_is_registered_for_a_time_and_moved_alone(
    browser: Browser, api: Client, clock: ShiftingClock
) -> None:
    group = api.topic(mode="broadcast", shards=1).group()
    group.register("south")
    group.topic.produce(1)
    form = page(browser, group).form("put_consumer")
    browser.submit(form, consumer="north", expires_after_seconds="90", **{"from": "earliest"})
    clock.advance(31)
    text = page(browser, group).text
    assert text.count("OFFLINE") == 2
    assert "removed after 1 m 30 s of silence" in text
    screen = page(browser, group, "/settings?to=latest&consumer=north")
    assert "1 is passed over" in screen.text
    browser.submit(screen.form("seek_group"))
    assert group.bodies(consumer="north") == []
    assert group.bodies(consumer="south") == [1]


def test_a_group_is_deleted_by_its_typed_name_only(browser: Browser, group: Group, api: Client) -> None:
    form = page(browser, group, "/settings").form("delete_group")
    assert browser.submit(form, confirm="other").status == 400
    page(browser, group, "/settings")
    assert "The group is deleted" in browser.submit(form, confirm="mailer").text
    api.get(group.path).refused(404, "GROUP_NOT_FOUND")


def test_blocked_keys_and_by_whom(api: Client, browser: Browser) -> None:
    topic = api.topic(shards=1, mode="serial")
    group = topic.group("ledger")
    group.register("worker-1")
    for key in ("red", "blue", "red", "red", "blue", "green"):
        topic.produce(key, ordering_key=key)
    messages = group.receive(3, consumer="worker-1", lease_seconds=300)
    assert [message["body"] for message in messages] == ["red", "blue", "green"]
    group.nack(messages[1], delay_seconds=900)
    screen = browser.get(f"/console/topics/{topic.name}/groups/{group.name}")
    assert screen.units <= 20
    table = screen.html.split("Blocked keys")[1].partition("</table>")[0]
    _, *rows = table.split("<tr data-line>")
    assert ["red" in rows[0], "under way at worker-1" in rows[0], ">2</a></td>" in rows[0]] == [True] * 3
    assert ["blue" in rows[1], "waiting for its next attempt" in rows[1], ">1</a></td>" in rows[1]] == [
        True
    ] * 3
    assert len(rows) == 2, "green is leased, and none of its messages waits"
    assert messages[0]["id"] in rows[0]
    assert "Messages wait now because of earlier messages of their keys" in " ".join(screen.text.split())
    who = browser.get(f"/console/topics/{topic.name}/groups/{group.name}?waiting=1").html.split("Waits for")[
        1
    ]
    assert [key in who for key in ("red", "blue", "green")] == [True, True, False]
    group.nack(messages[2], delay_seconds=900)
    table = browser.get(f"/console/topics/{topic.name}/groups/{group.name}").html.split("Blocked keys")[1]
    assert "green" in table.partition("</table>")[0], (
        "until its retry, later ones wait that no claim has met yet"
    )


def test_where_dead_letters_are_dear_to_count_the_page_says_the_price(api: Client, browser: Browser) -> None:
    group = api.topic(shards=1).group()
    dice = random.Random(1)
    for _ in range(30):
        group.topic.batch([{"body": dice.randbytes(1_500).hex()} for _ in range(2)])
    group.nack(*group.receive(60), dead_letter=True)
    screen = browser.get(f"/console/topics/{group.topic.name}/groups/{group.name}")
    assert screen.units <= 20
    assert re.search(r"Dead \d+\+ count: [\d,]+ read units for 1,000", screen.text), screen.text
    assert next(link for text, link in screen.links.items() if text.startswith("count:")).endswith("?all=1")


def test_a_destination_is_set_and_tried_on_a_group_s_pages(
    api: Client, browser: Browser, group: Group
) -> None:
    alerts = api.topic()
    form = page(browser, group, "/settings").form("put_group")
    browser.submit(form, on_dead=alerts.name, **{"on_dead.include_body": "true"})
    assert api.get(group.path).expect(200)["on_dead"] == {"topic": alerts.name, "include_body": True}
    assert "Sent." in browser.submit(page(browser, group).form("produce")).text
    [message] = api.get(f"{alerts.path}/messages").expect(200)["items"]
    assert message["body"] == {"test": "on_dead", "topic": group.topic.name, "group": group.name}
    browser.submit(page(browser, group, "/settings").form("put_group"), on_dead="")
    assert api.get(group.path).expect(200)["on_dead"] is None


def test_events_are_sent_to_a_topic_from_the_system_s_page(api: Client, browser: Browser) -> None:
    alerts = api.topic()
    browser.submit(browser.get("/console/system").form("put_events"), to=alerts.name)
    assert len(api.get("/v1/events").expect(200)["types"]) == 9
    browser.submit(browser.get("/console/system").form("delete_events"))
    assert api.get("/v1/events").expect(200)["topic"] is None
