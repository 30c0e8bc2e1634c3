"""A topic's page: the shard strip is exact, groups are paused and resumed, settings change in place."""

from __future__ import annotations

import re

from tests.support.browser import Browser
from tests.support.http import Client


def test_the_strip_tells_floor_next_leases_and_what_waits(api: Client, browser: Browser) -> None:
    topic = api.topic(shards=1, retry={"ladder": [600], "max_attempts": 3})
    group = topic.group("mailer", mode="serial")
    for n in range(10):
        topic.produce(n, ordering_key=f"k{n}")
    messages = group.receive(6)
    group.ack(*messages[:2])
    group.nack(messages[3], delay_seconds=600)
    screen = browser.get(f"/console/topics/{topic.name}")
    assert screen.units <= 20
    bars = re.findall(r'class="s-(\w+)" x="([\d.]+)" y="2" width="([\d.]+)"', screen.html)
    width_of = {kind: 0.0 for kind, _, _ in bars}
    for kind, _, width in bars:
        width_of[kind] += float(width)
    assert width_of == {"done": 200, "lease": 300, "wait": 100, "new": 400}, (
        "ten offsets: a hundred thousandths each"
    )
    assert "floor 2, next 6, backlog 8" in screen.html
    assert "8 behind" in screen.text


def test_a_segment_that_was_read_for_the_strip_is_not_read_again(api: Client, browser: Browser) -> None:
    topic = api.topic(shards=4)
    topic.group("mailer", **{"from": "earliest"})
    topic.batch([{"body": n, "shard": n % 4} for n in range(40)])
    screen = browser.get(f"/console/topics/{topic.name}")
    assert screen.text.count("10 behind") == 4
    assert screen.units <= 9, (
        "two rows for each shard: its first, last and oldest message, and its last attempts"
    )


def test_a_strip_shows_where_work_is_and_says_what_is_older(api: Client, browser: Browser) -> None:
    topic = api.topic(shards=1)
    group = topic.group("quick")
    for _ in range(2):
        topic.batch([{"body": n} for n in range(500)])
        group.ack(*group.receive(500))
    topic.produce("last")
    screen = browser.get(f"/console/topics/{topic.name}")
    assert "980 older" in screen.text
    assert "1 behind" in screen.text


def test_a_topic_without_messages_or_groups_says_so(api: Client, browser: Browser) -> None:
    topic = api.topic()
    text = browser.get(f"/console/topics/{topic.name}").text
    assert "Nothing is kept in this topic" in text
    assert "No group reads this topic yet" in text


def test_a_group_is_made_paused_and_resumed(api: Client, browser: Browser) -> None:
    topic = api.topic()
    screen = browser.get(f"/console/topics/{topic.name}")
    screen = browser.submit(
        screen.form("put_group"), group="mailer", filter="paid || refunded", **{"from": "earliest"}
    )
    assert "Saved." in screen.text
    screen = browser.submit(screen.form("pause_group"))
    assert "Paused: no more messages are handed out" in screen.text
    assert api.get(f"{topic.path}/groups/mailer").expect(200)["paused"] is True
    browser.submit(screen.form("resume_group"))
    group = api.get(f"{topic.path}/groups/mailer").expect(200)
    assert (group["paused"], group["filter"]) == (False, "paid || refunded")


def test_what_a_token_may_not_do_is_grey_and_says_why(api: Client, stranger: Browser) -> None:
    topic = api.topic()
    topic.group("mailer")
    stranger.enter(api.new_token("consume")["token"])
    screen = stranger.get(f"/console/topics/{topic.name}")
    form = screen.form("pause_group")
    assert form.disabled
    assert "needs a token with the scope 'admin'" in form.refusal
    answer = stranger.post("/console/do", form.fields)
    assert (answer.status, "SCOPE_MISSING" in answer.text) == (403, True), "and not only grey"


def test_a_topic_is_deleted_by_its_typed_name_only(api: Client, browser: Browser) -> None:
    topic = api.topic()
    form = browser.get(f"/console/topics/{topic.name}/settings").form("delete_topic")
    assert browser.submit(form, confirm="another").status == 400
    api.get(topic.path).expect(200)
    browser.get(f"/console/topics/{topic.name}/settings")
    assert "The topic is deleted." in browser.submit(form, confirm=topic.name).text
    api.get(topic.path).refused(404, "TOPIC_NOT_FOUND")


def test_many_groups_and_shards_do_not_make_the_page_dear(api: Client, browser: Browser) -> None:
    topic = api.topic(shards=64)
    for n in range(12):
        topic.group(f"g{n:02}")
    topic.batch([{"body": n, "shard": n % 64} for n in range(200)])
    screen = browser.get(f"/console/topics/{topic.name}")
    assert screen.units <= 20
    assert "more groups are not counted here" in screen.text
    assert "Shard 7" in screen.text
    assert "Shard 8" not in screen.text
    assert "Shard 8" in browser.follow("Shards from 8 on").text
