"""Rate limits over HTTP: what is over a topic's limit is refused honestly, or waits among the dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.http import Client, Reply, ShiftingClock

CODE = "RATE_LIMITED"


def codes(results: list[Any]) -> list[str]:
    return [result["error"]["code"] if "error" in result else "ok" for result in results]


def refused_after(post: Callable[[], Reply]) -> int:
    """How many are accepted before a refusal: time goes on, and each second brings another permit."""
    for count in range(20):
        reply = post()
        if reply.status != 201:
            assert reply.refused(429, CODE)["retryable"]
            assert {name.lower(): value for name, value in reply.headers.items()}["retry-after"] == "1"
            return count
    raise AssertionError("never refused")


def test_a_batch_is_served_in_part_and_each_of_the_rest_is_told_so(api: Client) -> None:
    topic = api.topic(rate_limit=10)
    results = topic.batch([{"body": n, "keys": ["k"]} for n in range(8)])
    assert codes(results) == ["ok"] * 5 + [CODE] * 3
    assert [result["index"] for result in results] == list(range(8))
    assert results[7]["error"]["retryable"]
    assert topic.accepted == 5
    assert len(api.get(f"{topic.path}/messages?key=k").expect(200)["items"]) == 5


def test_bad_messages_of_a_batch_are_told_what_is_wrong_and_do_not_count(api: Client) -> None:
    topic = api.topic(rate_limit=10, shards=1)
    bad = [{"body": 1, "shard": 7}, {"body": 1, "tag": ""}] * 5
    results = topic.batch([*bad, *({"body": n} for n in range(6))])
    assert codes(results) == ["NO_SUCH_SHARD", "VALIDATION"] * 5 + ["ok"] * 5 + [CODE]


def test_a_repeated_batch_goes_on_where_its_first_try_was_stopped(api: Client, clock: ShiftingClock) -> None:
    """Its messages are equal: only the whole request identifies the stored ones, which count no more."""
    topic = api.topic(rate_limit=10)
    body = {"messages": [{"body": "tick"}] * 12}
    stored: list[str] = []
    for tries in range(3):
        resend = {"Headrace-Resend": str(1 + tries)} if tries else {}
        headers = {"Headrace-Request": "shop-1", **resend}
        results = api.call("POST", f"{topic.path}/messages/batch", body, headers=headers).expect(200)[
            "results"
        ]
        ids = [result["id"] for result in results if "id" in result]
        assert (ids[: len(stored)], len(set(ids))) == (stored, len(ids))
        stored = ids
        clock.advance(1)
    assert (len(stored), topic.accepted) == (12, 12)


@pytest.mark.parametrize("way", ["messages", "publish", "delayed"])
def test_every_way_in_is_limited_and_opens_again(api: Client, clock: ShiftingClock, way: str) -> None:
    topic = api.topic(rate_limit=1)
    fields = {"delay_seconds": 1} if way == "delayed" else {}

    def post() -> Reply:
        if way == "publish":
            return topic.publish(b"raw", content_type="text/plain")
        return api.post(f"{topic.path}/messages", {"body": 1, **fields})

    count = refused_after(post)
    clock.advance(1)
    assert post().status == 201
    assert topic.accepted == (0 if fields else count + 1)


def test_another_topic_is_not_concerned(api: Client) -> None:
    limited_topic = api.topic(rate_limit=1)
    refused_after(lambda: api.post(f"{limited_topic.path}/messages", {"body": 1}))
    api.topic(rate_limit=1).produce(1)
    assert codes(api.topic().batch([{"body": n} for n in range(50)])) == ["ok"] * 50


def test_a_limit_taken_away_holds_no_more(api: Client, clock: ShiftingClock) -> None:
    topic = api.topic(rate_limit=1)
    refused_after(lambda: api.post(f"{topic.path}/messages", {"body": 1}))
    api.put(topic.path, {"rate_limit": None}).expect(200)
    clock.advance(5)  # settings are kept for some seconds
    assert codes(topic.batch([{"body": n} for n in range(50)])) == ["ok"] * 50


def test_dead_letters_of_a_rate_limit_are_seen_and_redriven(api: Client) -> None:
    topic = api.topic(rate_limit=1, on_rate_limit="dead_letter", shards=1)
    group, other = topic.group(), topic.group("other")
    results = topic.batch([{"body": n} for n in range(3)])
    assert codes(results) == ["ok"] * 3
    assert group.bodies() == [0]
    letters = api.get(f"{group.path}/dead-letters?reason={CODE}").expect(200)["items"]
    assert [(x["id"], x["reason"], x["attempts"]) for x in letters] == [
        (result["id"], CODE, 0) for result in results[1:]
    ]
    status = group.status_of(results[2]["id"])
    assert (status["status"], status["attempts"], status["reason"]) == ("DEAD", 0, CODE)
    trace = api.get(f"{topic.path}/messages/{results[2]['id']}/trace").expect(200)["events"]
    assert [(e["event"], e["detail"]) for e in trace][1:] == [("buried", CODE)]
    assert api.post(f"{group.path}/dead-letters/redrive", {}).expect(200)["redriven"] == 2
    again = group.receive(wait_seconds=1)
    assert sorted(m["body"] for m in again) == [1, 2]
    assert set(group.ack(*again)) == {"ok"}
    assert group.status_of(results[2]["id"])["status"] == "SUCCESS"
    assert other.bodies() == [0]
    assert topic.counts("other")["dead"] == 2
