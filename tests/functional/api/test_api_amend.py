"""One message over HTTP, changed after it was stored: edited, cancelled, tried now."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.background import Background
from tests.support.dead_letters import receive_again, retry_now
from tests.support.http import Client, Reply, ShiftingClock, Topic


def place(topic: Topic, message: Any) -> str:
    return f"{topic.path}/messages/{message['id']}"


def edit(topic: Topic, message: Any, **changes: Any) -> Reply:
    return topic.api.call("PATCH", place(topic, message), changes)


def cancel(topic: Topic, message: Any) -> Reply:
    return topic.api.call("DELETE", place(topic, message))


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
    events = api.get(f"{place(topic, messages[1])}/trace").expect(200)["events"]
    assert [event["event"] for event in events] == ["accepted", "cancelled"]


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


@pytest.mark.parametrize("id", ["nonsense", "0123456789ab-0-0"])
def test_what_is_not_there_cannot_be_changed(api: Client, id: str) -> None:
    topic = api.topic()
    edit(topic, {"id": id}, body=1).refused(404, "MESSAGE_NOT_FOUND")
    cancel(topic, {"id": id}).refused(404, "MESSAGE_NOT_FOUND")


@pytest.mark.parametrize("changes", [{}, {"tag": "t"}, {"headers": {"h": 1}}, {"retry": {"max_attempts": 0}}])
def test_a_change_that_is_none_is_refused(api: Client, changes: dict[str, Any]) -> None:
    topic = api.topic()
    edit(topic, topic.produce("x"), **changes).refused(400, "VALIDATION")


@pytest.mark.parametrize("mode", ["queue", "serial"])
def test_what_waits_for_its_next_attempt_can_be_tried_now_and_is_tried_once(
    api: Client, background: Background, mode: str
) -> None:
    topic = api.topic(mode=mode)
    group = topic.group()
    message = topic.produce("x")
    group.nack(*group.receive(), delay_seconds=3600, reason="later")
    assert group.receive() == []
    waiting = group.status_of(message["id"])
    assert (waiting["status"], waiting["last_error"]) == ("RETRYING", "later")
    assert waiting["next_attempt_at"] > message["accepted_at"]
    answer = retry_now(group, message["id"]).expect(200)
    assert answer.items() >= {"id": message["id"], "group": "g", "status": "RETRYING", "attempts": 1}.items()
    retry_now(group, message["id"]).expect(200)
    [second] = receive_again(group)
    assert second["attempt"] == 2
    group.ack(second)
    background.later(topic, 7200)
    assert group.receive() == []
    assert group.status_of(message["id"]).items() >= {"status": "SUCCESS", "attempts": 2}.items()


@pytest.mark.parametrize("status", ["NEW", "RUNNING", "SUCCESS"])
def test_there_is_nothing_to_retry_for_what_neither_waits_nor_is_dead(api: Client, status: str) -> None:
    topic = api.topic()
    group = topic.group()
    message = topic.produce("x")
    messages = group.receive() if status != "NEW" else []
    if status == "SUCCESS":
        group.ack(*messages)
    retry_now(group, message["id"]).refused(409, "NOTHING_TO_RETRY")
    assert group.status_of(message["id"])["status"] == status
