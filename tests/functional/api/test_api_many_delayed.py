"""Many delayed messages at once: delivered now, postponed, cancelled; with a preview."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.api.fields import at
from chalicelib.domain.times import HOUR_SECONDS
from tests.support.background import Background
from tests.support.http import Client, Topic

pytestmark = pytest.mark.usefixtures("no_timers")


@pytest.fixture
def topic(api: Client) -> Topic:
    return api.topic()


def waiting(topic: Topic, *delays: int, **fields: Any) -> list[str]:
    """Messages that are due after so many seconds."""
    return [topic.produce(n, delay_seconds=delay, **fields)["id"] for n, delay in enumerate(delays)]


def changed(topic: Topic, query: str = "", **body: Any) -> Any:
    return topic.api.call("PATCH", f"{topic.path}/messages{query}", body).expect(200)


def times(topic: Topic, *ids: str) -> list[str]:
    views = [topic.api.get(f"{topic.path}/messages/{id}").expect(200) for id in ids]
    return [each["deliver_at"] if each["status"] == "DELAYED" else each["status"] for each in views]


def test_those_of_a_tag_are_postponed_and_moved_back(topic: Topic) -> None:
    ids = waiting(topic, HOUR_SECONDS, 2 * HOUR_SECONDS, tag="paid")
    (other,) = waiting(topic, HOUR_SECONDS, tag="refunded")
    before = times(topic, *ids, other)
    answer = changed(topic, "?tag=paid", postpone_seconds=600, dry_run=True)
    assert [(each["id"], each["changed"]) for each in answer["items"]] == [(id, True) for id in ids]
    assert times(topic, *ids, other) == before, "it only tells"
    assert changed(topic, "?tag=paid", postpone_seconds=600) == answer
    assert times(topic, *ids, other) == [*(each["deliver_at"] for each in answer["items"]), before[2]]
    changed(topic, postpone_seconds=-600, ids=[*ids, ids[0]])
    assert times(topic, *ids) == before[:2], "also where an id is named twice"


def test_those_of_an_hour_are_delivered_now(topic: Topic, background: Background) -> None:
    group = topic.group()
    soon, late_id = waiting(topic, HOUR_SECONDS, 3 * HOUR_SECONDS)
    now_ms = background.clock.now_ms()
    answer = changed(topic, f"?to={at(now_ms + 2 * HOUR_SECONDS * 1000)}", deliver_at=at(now_ms))
    assert [each["id"] for each in answer["items"]] == [soon]
    background.pass_time(1)
    assert [each["id"] for each in group.receive()] == [soon]
    assert times(topic, late_id) != ["NEW"]


def test_each_is_taken_back_or_says_why_not(topic: Topic) -> None:
    first, second = waiting(topic, HOUR_SECONDS, HOUR_SECONDS)
    there = topic.produce("there")["id"]
    items = changed(topic, cancel=True, ids=[first, there, "nothing"])["items"]
    assert items[0] == {"id": first, "changed": True, "deliver_at": None}
    assert [each["error"]["code"] for each in items[1:]] == ["NOT_DELAYED", "MESSAGE_NOT_FOUND"]
    assert changed(topic, cancel=True, ids=[first])["items"][0]["changed"] is False, "it was"
    (again,) = changed(topic, postpone_seconds=1, ids=[first])["items"]
    assert again["error"]["code"] == "MESSAGE_CANCELLED"
    assert times(topic, first, second)[0] == "CANCELLED"


def test_a_prepared_message_waits_for_its_decision(topic: Topic) -> None:
    half = topic.api.post(f"{topic.path}/transactions", {"message": {"body": "half"}}).expect(201)
    message_id = half["message_id"]
    (item,) = changed(topic, postpone_seconds=60, ids=[message_id])["items"]
    assert item["error"]["code"] == "NOT_DELAYED"
    assert "transaction" in item["error"]["detail"]


def test_what_was_postponed_does_not_come_by_again(topic: Topic) -> None:
    """Soonest first, what is postponed stands behind what is still to come."""
    ids = waiting(topic, HOUR_SECONDS, HOUR_SECONDS + 1, HOUR_SECONDS + 2, HOUR_SECONDS + 3)
    before = times(topic, *ids)
    ids_seen, token = [], ""
    while True:
        page = changed(topic, f"?limit=2{token}", postpone_seconds=2 * HOUR_SECONDS)
        ids_seen += [each["id"] for each in page["items"]]
        if "next_page_token" not in page:
            break
        token = f"&page_token={page['next_page_token']}"
    assert ids_seen == ids
    assert sorted(times(topic, *ids)) == times(topic, *ids)
    assert times(topic, *ids)[0] > before[-1]


def test_who_did_it_is_in_the_audit_trail_and_in_each_trace(api: Client, topic: Topic) -> None:
    (id,) = waiting(topic, HOUR_SECONDS)
    changed(topic, postpone_seconds=60, ids=[id])
    entry = api.get(f"/v1/audit?topic={topic.name}&limit=1").expect(200)["items"][0]
    assert (entry["method"], entry["path"], entry["result"]) == (
        "PATCH",
        "/v1/topics/{topic}/messages",
        "OK",
    )
    trace = api.get(f"{topic.path}/messages/{id}/trace").expect(200)["events"]
    assert trace[-1]["event"] == "postponed"
    assert trace[-1]["by"]["name"]


@pytest.mark.parametrize(
    ("query", "body", "status", "code"),
    [
        ("", {}, 400, "VALIDATION"),
        ("", {"cancel": True, "postpone_seconds": 1}, 400, "VALIDATION"),
        ("", {"deliver_at": "soon"}, 400, "VALIDATION"),
        ("?tag=a", {"cancel": True, "ids": ["x"]}, 422, "REDRIVE_AMBIGUOUS"),
        ("?key=", {"cancel": True}, 400, "VALIDATION"),
        ("?from=x", {"cancel": True}, 400, "VALIDATION"),
        ("?shard=99", {"cancel": True}, 422, "NO_SUCH_SHARD"),
    ],
)
def test_what_is_not_clear_changes_nothing(
    topic: Topic, query: str, body: Any, status: int, code: str
) -> None:
    (id,) = waiting(topic, HOUR_SECONDS)
    topic.api.call("PATCH", f"{topic.path}/messages{query}", body).refused(status, code)
    assert times(topic, id)[0] != "CANCELLED"


def test_nobody_waits_for_eleven_years(topic: Topic) -> None:
    (id,) = waiting(topic, HOUR_SECONDS)
    (item,) = changed(topic, postpone_seconds=10 * 365 * 86_400, ids=[id])["items"]
    assert item["error"]["code"] == "DELAY_TOO_LONG"
