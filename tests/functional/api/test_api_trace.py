"""A message's trace over HTTP: its attempts with their consumers, in order; and the owners of shards, with reasons."""

from __future__ import annotations

from typing import Any

import pytest

from tests.functional.delivery.receivers import Receiver
from tests.support.background import Background
from tests.support.http import Client, Group, ShiftingClock, Topic

FIELDS = {
    "at", "event", "group", "consumer", "attempt", "rank", "total", "shard", "duration_ms", "outcome", "detail",
}  # fmt: skip
OF_SOME = {"app", "address", "by", "owner", "deadline_at", "deliver_at"}


def path(topic: Topic, message_id: str) -> list[Any]:
    """The events, which must be complete and in order of time."""
    events: list[Any] = topic.api.get(f"{topic.path}/messages/{message_id}/trace").expect(200)["events"]
    assert all(FIELDS <= event.keys() <= FIELDS | OF_SOME for event in events)
    assert [event["at"] for event in events] == sorted(event["at"] for event in events)
    return events


def told(events: list[Any], *fields: str) -> list[tuple[Any, ...]]:
    return [tuple(event[field] for field in fields) for event in events]


def redrive(group: Group) -> None:
    assert group.api.post(f"{group.path}/dead-letters/redrive").expect(200) == {"redriven": 1}


def test_a_message_that_waits_has_a_path_already(api: Client) -> None:
    topic = api.topic()
    delayed_message = topic.produce("x", delay_seconds=60)
    assert told(path(topic, delayed_message["id"]), "event", "at", "shard") == [
        ("accepted", delayed_message["accepted_at"], None),
        ("delayed", delayed_message["accepted_at"], None),
    ]
    half = api.post(f"{topic.path}/transactions", {"message": {"body": 1}}).expect(201)
    assert told(path(topic, half["message_id"]), "event", "at") == [("prepared", half["prepared_at"])]
    over = api.post(f"/v1/transactions/{half['transaction_id']}/rollback").expect(200)
    assert told(path(topic, half["message_id"]), "event", "at") == [
        ("prepared", half["prepared_at"]),
        ("cancelled", over["decided_at"]),
    ]


def test_a_trace_says_which_app_sent_a_message_and_from_where(api: Client) -> None:
    topic = api.topic()
    sent_at = "2026-01-01T00:00:00.000Z"
    headers = {"Headrace-App": "billing/1.4"}
    for fields in ({}, {"delay_seconds": 60}):
        body = {"body": 1, "sent_at": sent_at, **fields}
        message = api.call("POST", f"{topic.path}/messages", body, headers=headers).expect(201)
        first, *rest = path(topic, message["id"])
        assert (first["app"], first["address"]) == ("billing/1.4", "127.0.0.1")
        assert first["by"]["id"]
        assert not [each for each in rest if "app" in each]
        assert api.get(f"{topic.path}/messages/{message['id']}").expect(200)["sent_at"] == sent_at
    refused = api.call("POST", f"{topic.path}/messages", {"body": 1}, headers={"Headrace-App": "a b"})
    assert refused.refused(400)["errors"][0]["path"] == "headrace-app"


def test_what_people_did_bears_the_token_that_did_it(api: Client, background: Background) -> None:
    topic = api.topic()
    group = topic.group()
    holders = {}
    for name in ("ann", "ben"):
        token = api.post("/v1/tokens", {"name": name, "scopes": ["produce", "consume", "admin"]}).expect(201)
        holders[name] = api.with_token(token["token"]), {"id": token["id"], "name": name}
    (ann, is_ann), (ben, is_ben) = holders["ann"], holders["ben"]
    message_sent = ann.post(f"{topic.path}/messages", {"body": 1, "delay_seconds": 60}).expect(201)
    place = f"{topic.path}/messages/{message_sent['id']}"
    ben.call("PATCH", place, {"body": 2}).expect(200)
    until = ann.call("PATCH", place, {"deliver_at": message_sent["accepted_at"]}).expect(200)["deliver_at"]
    background.move()
    group.register("worker")
    [message] = group.receive(consumer="worker")
    assert (message["body"], message["accepted_at"]) == (2, message_sent["accepted_at"])
    view = ben.get(place).expect(200)
    assert (view["accepted_at"], view["deliver_at"], view["size"]) == (message_sent["accepted_at"], until, 1)
    events = path(topic, message_sent["id"])
    assert [(e["event"], e.get("by")) for e in events] == [
        ("accepted", is_ann),
        ("delayed", is_ann),
        ("edited", is_ben),
        ("postponed", is_ann),
        ("due", None),
        ("leased", None),
    ]
    assert [e["deliver_at"] for e in events if "deliver_at" in e] == [message_sent["deliver_at"], until]
    lease = events[-1]
    assert (lease["owner"], lease["consumer"], lease["attempt"]) == ("worker", "worker", 1)
    assert lease["deadline_at"] > lease["at"]
    group.nack(message, dead_letter=True)
    letter = f"{group.path}/dead-letters/{message_sent['id']}"
    ann.call("PATCH", letter, {"body": 3}).expect(200)
    ben.post(f"{group.path}/dead-letters/redrive").expect(200)
    background.clock.advance(5)
    [message] = group.receive(consumer="worker")
    group.nack(message, dead_letter=True)
    ann.delete(letter).expect(204)
    ann.delete(f"/v1/tokens/{is_ben['id']}").expect(204)
    events = path(topic, message_sent["id"])[5:]
    assert [(e["event"], e.get("by")) for e in events] == [
        ("delivered", None),
        ("buried", None),
        ("edited", is_ann),
        ("redriven", {**is_ben, "name": None}),
        ("delivered", None),
        ("buried", None),
        ("deleted", is_ann),
    ]


@pytest.mark.parametrize("delay_seconds", [0, 60])
def test_a_transaction_s_message_is_accepted_with_the_commit_by_whoever_committed(
    api: Client, background: Background, delay_seconds: int
) -> None:
    topic = api.topic()
    topic.group()
    holders = {}
    for name in ("ann", "ben"):
        token = api.post("/v1/tokens", {"name": name, "scopes": ["produce"]}).expect(201)
        holders[name] = api.with_token(token["token"]), {"id": token["id"], "name": name}
    (ann, is_ann), (ben, is_ben) = holders["ann"], holders["ben"]
    message = {"body": 1, "delay_seconds": delay_seconds}
    half = ann.post(f"{topic.path}/transactions", {"message": message}).expect(201)
    background.clock.advance(5)
    decision = ben.post(f"/v1/transactions/{half['transaction_id']}/commit").expect(200)
    prepared = ("prepared", half["prepared_at"], is_ann)
    accepted = ("accepted", decision["decided_at"], is_ben)
    delayed = ("delayed", decision["decided_at"], is_ben)

    def shown() -> list[Any]:
        return [(e["event"], e["at"], e.get("by")) for e in path(topic, half["message_id"])]

    if not delay_seconds:
        assert shown() == [prepared, accepted]
        return
    assert shown() == [prepared, accepted, delayed]
    later = f"{topic.path}/messages/{half['message_id']}"
    background.clock.advance(10)
    api.call("PATCH", later, {"deliver_at": half["prepared_at"]}).expect(200)
    background.move()
    assert [event for event, *_ in shown()] == ["prepared", "accepted", "delayed", "postponed", "due"]
    assert shown()[:3] == [prepared, accepted, delayed]
    assert path(topic, half["message_id"])[2]["deliver_at"] == decision["deliver_at"], "before it was hurried"


def test_a_pulled_message_shows_who_had_it_and_how_long(api: Client, clock: ShiftingClock) -> None:
    topic = api.topic(shards=2)
    group = topic.group()
    for name in ("ann", "bob"):
        group.register(name)
    result = topic.produce("x", shard=1)
    [message] = group.receive(consumer="bob")
    clock.advance(2)
    group.nack(message, reason="no paper")
    [message] = group.receive(consumer="bob")
    clock.advance(1)
    group.ack(message)
    events = path(topic, result["id"])
    assert told(events, "event", "attempt", "outcome", "detail") == [
        ("accepted", None, None, None),
        ("delivered", 1, "RETRY", "no paper"),
        ("delivered", 2, "SUCCESS", None),
    ]
    assert told(events[1:], "group", "consumer", "rank", "total", "shard") == [("g", "bob", 1, 2, 1)] * 2
    assert 2000 <= events[1]["duration_ms"] < 60_000
    assert 1000 <= events[2]["duration_ms"] < 60_000


def test_a_pushed_message_shows_each_attempt_its_burial_and_its_redrive(
    api: Client, background: Background, receiver: Receiver
) -> None:
    topic = api.topic(retry={"max_attempts": 2, "ladder": [5]})
    group = topic.group()
    api.put(f"{group.path}/consumers/hook", {"url": receiver.url}).expect(201)
    message = topic.produce("x")
    receiver.status = 500
    background.push(topic)
    receiver.status = 502
    background.later(topic, 6)
    redrive(group)
    receiver.status = 200
    assert background.run(topic) == {"DONE": 1}
    events = path(topic, message["id"])
    assert told(events, "event", "consumer", "attempt", "rank", "total", "outcome", "detail") == [
        ("accepted", None, None, None, None, None, None),
        ("delivered", "hook", 1, 0, 1, "RETRY", "HTTP 500"),
        ("delivered", "hook", 2, 0, 1, "DEAD", "HTTP 502"),
        ("buried", None, 2, None, None, "DEAD", "HTTP 502"),
        ("redriven", None, None, None, None, None, None),
        ("delivered", "hook", 3, 0, 1, "SUCCESS", None),
    ]
    assert {event["shard"] for event in events} == {message["shard"]}
    assert all(0 <= event["duration_ms"] < 60_000 for event in events if event["event"] == "delivered")


# Who has which shard, and why


def test_a_fate_is_one_answer_for_every_group(api: Client) -> None:
    topic = api.topic()
    groups = [topic.group("a"), topic.group("b")]
    message = topic.produce({"n": 1}, tag="t")

    def fate(message_id: str) -> Any:
        answer = api.get(f"{topic.path}/messages/{message_id}/fate").expect(200)
        assert answer.keys() == {"message", "groups", "skipped", "complete", "adds_up"}
        assert answer["adds_up"] is True
        return answer

    fate_shown = fate(message["id"])
    assert (fate_shown["message"]["id"], fate_shown["message"]["body"], fate_shown["complete"]) == (
        message["id"],
        {"n": 1},
        False,
    )
    assert {name: (each["status"], each["places"]) for name, each in fate_shown["groups"].items()} == {
        "a": ("NEW", ["log"]),
        "b": ("NEW", ["log"]),
    }
    for group in groups:
        group.ack(*group.receive())
    fate_shown = fate(message["id"])
    assert (fate_shown["message"]["status"], fate_shown["complete"], fate_shown["skipped"]) == (
        "SUCCESS",
        True,
        [],
    )
    topic.group("late", **{"from": "latest"})
    assert fate(message["id"])["skipped"] == ["late"]
    delayed_message = topic.produce(1, delay_seconds=60)
    assert (fate(delayed_message["id"])["message"]["status"], fate(delayed_message["id"])["complete"]) == (
        "DELAYED",
        False,
    )
    api.delete(f"{topic.path}/messages/{delayed_message['id']}").expect(204)
    assert (fate(delayed_message["id"])["message"]["status"], fate(delayed_message["id"])["complete"]) == (
        "CANCELLED",
        True,
    )
    api.get(f"{topic.path}/messages/nobody/fate").refused(404, "MESSAGE_NOT_FOUND")
