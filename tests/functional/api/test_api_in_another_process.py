"""A process that has not heard of a change yet answers as one that has."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from chalicelib.domain.times import DAY_SECONDS
from tests.functional.delivery.receivers import Receiver
from tests.support.background import Background
from tests.support.dead_letters import bodies, bury, edit, letters, redrive, retry_now
from tests.support.http import Client, Group, Reply, Topic
from tests.support.other_process import client_of_another_process

"""The calls with a group that do not concern all its consumers."""


def _sought(other: Client, group: Group, message_id: str) -> None:
    other.post(f"{group.path}/seek", {"to": "earliest"}).expect(200)
    assert bodies(Group(other, group.topic, group.name), consumer="late") == ["x"]


def _redriven(other: Client, group: Group, message_id: str) -> None:
    assert redrive(Group(other, group.topic, group.name)) == 1
    assert bodies(group, consumer="late") == ["x"]


def _redriven_by_id(other: Client, group: Group, message_id: str) -> None:
    assert redrive(Group(other, group.topic, group.name), ids=[message_id]) == 1
    assert bodies(group, consumer="late") == ["x"]


def _tried_now(other: Client, group: Group, message_id: str) -> None:
    retry_now(Group(other, group.topic, group.name), message_id).expect(200)
    assert bodies(group, consumer="late") == ["x"]


def _edited(other: Client, group: Group, message_id: str) -> None:
    edit(Group(other, group.topic, group.name), message_id, "y").expect(200)
    assert [letter["body"] for letter in letters(group)] == ["y"]


def _merged(other: Client, group: Group, message_id: str) -> None:
    patch = {"ids": [message_id], "patch": {"y": 1}}
    other.call("PATCH", f"{group.path}/dead-letters", patch).expect(200)
    assert [letter["body"] for letter in letters(group)] == [{"y": 1}]


def _deleted(other: Client, group: Group, message_id: str) -> None:
    other.delete(f"{group.path}/dead-letters/{message_id}").expect(204)
    assert letters(group) == []


def _left(other: Client, group: Group, message_id: str) -> None:
    """Who came back under the name that another process knew is the one who leaves."""
    group.api.delete(f"{group.path}/consumers/early").expect(204)
    group.register("early")
    other.delete(f"{group.path}/consumers/early").expect(204)
    assert [each["consumer"] for each in _consumers(other, group)] == ["late"]


DEEDS: dict[str, list[Callable[[Client, Group, str], None]]] = {
    "seek_group": [_sought],
    "redrive": [_redriven, _redriven_by_id],
    "retry_now": [_tried_now],
    "edit_dead_letter": [_edited],
    "merge_dead_letters": [_merged],
    "delete_dead_letter": [_deleted],
    "delete_consumer": [_left],
}


@pytest.mark.parametrize("deed", [deed for deeds in DEEDS.values() for deed in deeds])
def test_a_change_reaches_a_consumer_that_another_process_registered(
    api: Client, background: Background, deed: Callable[[Client, Group, str], None]
) -> None:
    other = client_of_another_process(api, background)
    topic = api.topic(mode="broadcast", shards=1)
    group = topic.group()
    group.register("early")
    with background.clock.stopped():
        assert len(_consumers(other, group)) == 1
        group.register("late")
        message = topic.produce("x")
        assert group.ack(*group.receive(consumer="early")) == ["ok"]
        bury(group, consumer="late")
        assert len(_consumers(other, group)) == 1, "what it shows may be old"
        deed(other, group, message["id"])


NEW_SHARD = 1
LOOKS: dict[str, Callable[[Client, Group, str], Reply]] = {
    "get_message": lambda client, group, id: client.get(f"{group.topic.path}/messages/{id}"),
    "get_trace": lambda client, group, id: client.get(f"{group.topic.path}/messages/{id}/trace"),
    "get_fate": lambda client, group, id: client.get(f"{group.topic.path}/messages/{id}/fate"),
    "amend_message": lambda client, group, id: client.call(
        "PATCH", f"{group.topic.path}/messages/{id}", {"body": 1}
    ),
    "cancel_message": lambda client, group, id: client.delete(f"{group.topic.path}/messages/{id}"),
}
OF_LETTERS: dict[str, Callable[[Client, Group, str], Reply]] = {
    "get_dead_letter": lambda client, group, id: client.get(f"{group.path}/dead-letters/{id}"),
    "edit_dead_letter": lambda client, group, id: edit(Group(client, group.topic, group.name), id, 1),
    "delete_dead_letter": lambda client, group, id: client.delete(f"{group.path}/dead-letters/{id}"),
    "retry_now": lambda client, group, id: retry_now(Group(client, group.topic, group.name), id),
}


@pytest.mark.parametrize("name", [*LOOKS, *OF_LETTERS])
def test_a_message_is_found_by_a_process_that_does_not_know_its_shard_yet(
    api: Client, background: Background, name: str
) -> None:
    other = client_of_another_process(api, background)
    topic = api.topic(shards=1)
    group = topic.group()
    with background.clock.stopped():
        assert other.get(topic.path).expect(200)["shards"] == 1
        api.put(topic.path, {"shards": NEW_SHARD + 1}).expect(200)
        message = topic.produce("x", shard=NEW_SHARD, keys=["k"], dedup_id="d")
        for query in ("key=k", "dedup_id=d"):
            [item] = other.get(f"{topic.path}/messages?{query}").expect(200)["items"]
            assert item["id"] == message["id"]
        if name in OF_LETTERS:
            bury(group)
        reply = (LOOKS | OF_LETTERS)[name](other, group, message["id"])
        reply.expect(204 if reply.raw == b"" else 200)


@pytest.mark.parametrize(("comes_back", "status"), [(False, 404), (True, 200)])
def test_a_secret_is_rotated_of_the_consumer_that_is_there_now(
    api: Client, background: Background, receiver: Receiver, comes_back: bool, status: int
) -> None:
    other = client_of_another_process(api, background)
    group = api.topic().group()
    path = f"{group.path}/consumers/c"
    api.put(path, {"url": receiver.url}).expect(201)
    with background.clock.stopped():
        assert len(_consumers(other, group)) == 1
        api.delete(path).expect(204)
        if comes_back:
            api.put(path, {"url": receiver.url}).expect(201)
        other.post(f"{path}/rotate-secret").expect(status)


def _consumers(client: Client, group: Group) -> list[Any]:
    items: list[Any] = client.get(f"{group.path}/consumers").expect(200)["items"]
    return items


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
