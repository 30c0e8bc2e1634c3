"""A call is judged by today's settings, also in a process whose caches are from before another process's change."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from chalicelib.domain.times import DAY_SECONDS
from tests.functional.delivery.receivers import Receiver
from tests.support.background import Background
from tests.support.dead_letters import bury, edit
from tests.support.http import Client, Group, Topic
from tests.support.other_process import client_of_another_process

LONG = "x" * 20
REPLAYED = {"from": "2030-01-01T00:00:00.000Z", "to": "2030-01-02T00:00:00.000Z"}


def produced(client: Client, topic: Topic, **fields: Any) -> None:
    client.post(f"{topic.path}/messages", {"body": 1, **fields}).expect(201)


def produced_in_a_batch(client: Client, topic: Topic, **fields: Any) -> None:
    [result] = Topic(client, topic.name).batch([{"body": 1, **fields}])
    assert "error" not in result


def prepared(client: Client, topic: Topic, **fields: Any) -> None:
    client.post(f"{topic.path}/transactions", {"message": {"body": 1, **fields}}).expect(201)


def published(client: Client, topic: Topic, body: str) -> None:
    Topic(client, topic.name).publish(body.encode()).expect(201)


def amended(client: Client, topic: Topic, **fields: Any) -> None:
    id = topic.produce(1)["id"]
    client.call("PATCH", f"{topic.path}/messages/{id}", fields).expect(200)


def amended_while_it_waits(client: Client, topic: Topic, **fields: Any) -> None:
    id = topic.produce(1, delay_seconds=60)["id"]
    client.call("PATCH", f"{topic.path}/messages/{id}", fields).expect(200)


def edited_as_a_letter(client: Client, topic: Topic, body: str) -> None:
    group = topic.group()
    id = topic.produce(1)["id"]
    bury(group)
    edit(Group(client, topic, group.name), id, body).expect(200)


def merged_as_a_letter(client: Client, topic: Topic, body: str) -> None:
    group = topic.group()
    id = topic.produce({})["id"]
    bury(group)
    patch = {"ids": [id], "patch": {"x": body}}
    [item] = client.call("PATCH", f"{group.path}/dead-letters", patch).expect(200)["items"]
    assert item["changed"]


def replayed(client: Client, topic: Topic, body: str) -> None:
    id = client.post(f"{topic.path}/replays", REPLAYED).expect(202)["replay_id"]
    text = base64.b64encode(body.encode()).decode()
    message = {"id": "old", "shard": 0, "body_base64": text, "content_type": "text/plain"}
    [result] = client.post(f"/v1/replays/{id}/messages", {"messages": [message]}).expect(200)["results"]
    assert "error" not in result


def listed(client: Client, topic: Topic, shard: int) -> None:
    client.get(f"{topic.path}/messages?shard={shard}").expect(200)


def postponed(client: Client, topic: Topic, shard: int) -> None:
    client.call("PATCH", f"{topic.path}/messages?shard={shard}", {"postpone_seconds": 1}).expect(200)


def sought(client: Client, topic: Topic, shard: int) -> None:
    group = topic.group()
    client.post(f"{group.path}/seek", {"to": "latest", "shard": shard}).expect(200)


Call = Callable[..., None]
SIZE = {"max_body_bytes": 10}, {"max_body_bytes": 100}, {"body": LONG}
SHARDS = {"shards": 1}, {"shards": 2}, {"shard": 1}
REFUSE: Mapping[str, tuple[tuple[Any, Any, Any], tuple[Call, ...]]] = {
    "max_body_bytes": (
        SIZE,
        (
            *(produced, produced_in_a_batch, prepared, published, replayed),
            *(amended, amended_while_it_waits, edited_as_a_letter, merged_as_a_letter),
        ),
    ),
    "shards": (SHARDS, (produced, produced_in_a_batch, prepared, listed, postponed, sought)),
}


@pytest.mark.parametrize(
    ("settings", "call"),
    [(settings, call) for settings, calls in REFUSE.values() for call in calls],
    ids=[f"{name}-{call.__name__}" for name, (_, calls) in REFUSE.items() for call in calls],
)
def test_a_call_that_a_raised_setting_allows_is_accepted_in_every_process(
    api: Client, background: Background, settings: tuple[Any, Any, Any], call: Call
) -> None:
    before, after, fields = settings
    other = client_of_another_process(api, background)
    topic = api.topic(**before)
    with background.clock.stopped():
        other.get(topic.path).expect(200)
        api.put(topic.path, after).expect(200)
        call(other, topic, **fields)


@pytest.mark.parametrize("of", ["", "/trace", "/fate"])
def test_a_message_that_a_raised_retention_keeps_is_found_in_every_process(
    api: Client, background: Background, of: str
) -> None:
    other = client_of_another_process(api, background)
    topic = api.topic()
    id = topic.produce("x")["id"]
    background.pass_time(2 * DAY_SECONDS)
    api.put(topic.path, {"retention_days": 1}).expect(200)
    with background.clock.stopped():
        other.get(f"{topic.path}/messages/{id}{of}").refused(404, "MESSAGE_NOT_FOUND")
    background.pass_time(1)
    with background.clock.stopped():
        other.get(topic.path).expect(200)
        api.put(topic.path, {"retention_days": 7}).expect(200)
        other.get(f"{topic.path}/messages/{id}{of}").expect(200)


def test_what_a_topic_refuses_makes_a_process_read_it_once_a_second(
    api: Client, background: Background
) -> None:
    topic = api.topic(max_body_bytes=10)
    theirs = Topic(client_of_another_process(api, background), topic.name)
    with background.clock.stopped():
        theirs.publish(LONG.encode()).refused(413, "BODY_TOO_LARGE")
        api.put(topic.path, {"max_body_bytes": 100}).expect(200)
        theirs.publish(LONG.encode()).refused(413, "BODY_TOO_LARGE")
        background.clock.advance(2)
        theirs.publish(LONG.encode()).expect(201)


@pytest.mark.parametrize("was", ["another", "push"])
def test_a_heartbeat_counts_for_the_consumer_that_has_the_name_now(
    api: Client, background: Background, receiver: Receiver, was: str
) -> None:
    other = client_of_another_process(api, background)
    group = api.topic(shards=1).group()
    path = f"{group.path}/consumers/c"
    api.put(path, {"url": receiver.url} if was == "push" else {}).expect(201)
    with background.clock.stopped():
        other.get(path).expect(200)
        if was == "another":
            api.delete(path).expect(204)
        registered = api.put(path).expect(201 if was == "another" else 200)
        background.clock.advance(1)
        answer = other.post(f"{path}/heartbeat").expect(200)
    assert (answer["kind"], answer["rank"], answer["total"]) == ("pull", 0, 1)
    assert answer["last_seen_at"] > registered["last_seen_at"]


def test_a_consumer_is_tested_as_it_is_registered_now(
    api: Client, background: Background, receiver: Receiver
) -> None:
    other = client_of_another_process(api, background)
    group = api.topic().group()
    path = f"{group.path}/consumers/c"
    api.put(path).expect(201)
    with background.clock.stopped():
        other.get(path).expect(200)
        api.put(path, {"url": receiver.url}).expect(200)
        other.post(f"{path}/test").expect(200)
