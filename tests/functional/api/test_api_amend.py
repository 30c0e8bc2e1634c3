"""Editing and cancelling messages over HTTP, while no group has claimed them."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.limits import BLOB_THRESHOLD_BYTES
from tests.support.background import Background
from tests.support.http import Client, Reply, ShiftingClock, Topic


def place(topic: Topic, message: Any) -> str:
    return f"{topic.path}/messages/{message['id']}"


def edit(topic: Topic, message: Any, **changes: Any) -> Reply:
    return topic.api.call("PATCH", place(topic, message), changes)


def cancel(topic: Topic, message: Any) -> Reply:
    return topic.api.call("DELETE", place(topic, message))


def acting(api: Client, scope: str) -> Client:
    token = api.post("/v1/tokens", {"name": "t", "scopes": [scope]}).expect(201)
    return api.with_token(token["token"])


def test_a_message_is_edited_until_it_is_claimed_and_shown_as_edited(api: Client) -> None:
    topic = api.topic(shards=1)
    group = topic.group()
    message = topic.produce({"n": 1}, headers={"h": "1"}, keys=["k"])
    view = edit(topic, message, body={"n": 2}, headers={"h": "2"}, retry={"max_attempts": 2}).expect(200)
    assert (
        view.items() >= {"id": message["id"], "body": {"n": 2}, "headers": {"h": "2"}, "keys": ["k"]}.items()
    )
    assert (view["status"], view["deliveries"]["g"]["status"]) == ("NEW", "NEW")
    assert view["changed_at"] >= view["accepted_at"]
    assert api.get(place(topic, message)).expect(200) == view
    (claimed_message,) = group.receive()
    assert (claimed_message["body"], claimed_message["headers"], claimed_message["id"]) == (
        {"n": 2},
        {"h": "2"},
        message["id"],
    )
    events = api.get(f"{place(topic, message)}/trace").expect(200)["events"]
    assert [event["event"] for event in events] == ["accepted", "edited", "leased"]
    problem = edit(topic, message, body=3).refused(409, "ALREADY_CLAIMED")
    assert "'g'" in problem["detail"]
    cancel(topic, message).refused(409, "ALREADY_CLAIMED")
    assert api.get(place(topic, message)).expect(200)["body"] == {"n": 2}


def test_a_cancelled_message_reaches_nobody_and_is_shown_as_cancelled(api: Client) -> None:
    topic = api.topic(shards=1)
    group = topic.group()
    messages = [topic.produce(n) for n in range(3)]
    for _ in range(2):
        assert cancel(topic, messages[1]).status == 204
    edit(topic, messages[1], body="x").refused(409, "MESSAGE_CANCELLED")
    assert [message["body"] for message in group.receive()] == [0, 2]
    assert cancel(topic, messages[1]).status == 204
    edit(topic, messages[1], body="x").refused(409, "MESSAGE_CANCELLED")
    view = api.get(place(topic, messages[1])).expect(200)
    assert (view["status"], view["body"]) == ("CANCELLED", 1)
    assert view["deliveries"]["g"]["status"] == "CANCELLED"
    messages_found = api.get(f"{topic.path}/messages?group=g&status=CANCELLED").expect(200)["items"]
    assert [message["id"] for message in messages_found] == [messages[1]["id"]]
    statuses = {m["body"]: m["status"] for m in api.get(f"{topic.path}/messages").expect(200)["items"]}
    assert statuses == {0: "RUNNING", 1: "CANCELLED", 2: "RUNNING"}


def test_an_edit_is_of_one_message_of_a_batch(api: Client) -> None:
    topic = api.topic(shards=1)
    group = topic.group()
    results = topic.batch([{"body": n} for n in range(100)])
    edit(topic, results[50], body="fifty").expect(200)
    cancel(topic, results[51])
    expected = [*range(50), "fifty", *range(52, 100)]
    assert [message["body"] for message in group.receive(100)] == expected


def test_a_large_body_can_take_the_place_of_a_small_one_and_go_again(api: Client) -> None:
    topic = api.topic(shards=1, max_body_bytes=BLOB_THRESHOLD_BYTES + 2)
    group = topic.group()
    result = topic.produce("small")
    large = "x" * BLOB_THRESHOLD_BYTES
    assert edit(topic, result, body=large).expect(200)["body"] == large
    edit(topic, result, body=large + "x").refused(413, "BODY_TOO_LARGE")
    assert edit(topic, result, headers={"h": "v"}).expect(200)["body"] == large
    other = topic.produce(large)
    edit(topic, other, body="small").expect(200)
    assert [message["body"] for message in group.receive()] == [large, "small"]


def test_a_message_in_the_log_has_no_time_to_change(api: Client) -> None:
    topic = api.topic()
    message = topic.produce("x")
    edit(topic, message, deliver_at="2030-01-01T00:00:00.000Z").refused(422, "NOT_DELAYED")
    edit(topic, message, body="y", deliver_at="2030-01-01T00:00:00.000Z").refused(422, "NOT_DELAYED")
    assert api.get(place(topic, message)).expect(200)["body"] == "x"


def test_the_time_of_a_message_is_refused_for_the_reason_that_counts(
    api: Client, clock: ShiftingClock, background: Background
) -> None:
    topic = api.topic(shards=1)
    group, times = topic.group(), {"deliver_at": "2030-01-01T00:00:00.000Z"}
    delayed = topic.produce("x", delay_seconds=5)
    clock.advance(6)
    background.move()
    edit(topic, delayed, **times).refused(409, "ALREADY_DUE")
    message = topic.produce("y")
    assert group.ack(*group.receive()) == ["ok", "ok"]
    for each in (delayed, message):
        edit(topic, each, **times).refused(409, "ALREADY_CLAIMED")


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
def test_only_who_may_produce_or_administer_changes_messages(api: Client, method: str) -> None:
    topic = api.topic()
    message = topic.produce("x")
    path, fields = place(topic, message), {"body": 1} if method == "PATCH" else None
    acting(api, "consume").call(method, path, fields).refused(403, "SCOPE_MISSING")
    assert acting(api, "produce").call(method, path, fields).status in (200, 204)


@pytest.mark.parametrize("id", ["nonsense", "0123456789ab-0-0"])
def test_what_is_not_there_cannot_be_changed(api: Client, id: str) -> None:
    topic = api.topic()
    edit(topic, {"id": id}, body=1).refused(404, "MESSAGE_NOT_FOUND")
    cancel(topic, {"id": id}).refused(404, "MESSAGE_NOT_FOUND")


@pytest.mark.parametrize("changes", [{}, {"tag": "t"}, {"headers": {"h": 1}}, {"retry": {"max_attempts": 0}}])
def test_a_change_that_is_none_is_refused(api: Client, changes: dict[str, Any]) -> None:
    topic = api.topic()
    edit(topic, topic.produce("x"), **changes).refused(400, "VALIDATION")
