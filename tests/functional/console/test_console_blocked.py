"""A serial group says which keys hold messages back, and by whom."""

from __future__ import annotations

from tests.support.browser import Browser
from tests.support.http import Client


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
    assert len(rows) == 2, "green holds back nobody"
    assert messages[0]["id"] in rows[0]


def test_a_queue_blocks_no_key(api: Client, browser: Browser) -> None:
    topic = api.topic(shards=1)
    group = topic.group()
    topic.produce(1, ordering_key="k")
    group.receive(1)
    assert "Blocked keys" not in browser.get(f"/console/topics/{topic.name}/groups/{group.name}").html
