"""A change is made whole by a process whose caches are from before another process's change.

Each process caches topics, groups and their consumers for three seconds. What one process shows may be as old as that;
what it changes must reach every consumer that is registered by then, and every message that was accepted is found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.functional.delivery.receivers import Receiver
from tests.support.background import Background
from tests.support.dead_letters import bodies, bury, edit, letters, redrive, retry_now
from tests.support.http import Client, Group, Reply
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


def test_a_delayed_message_is_found_in_whatever_shard_it_came(api: Client, background: Background) -> None:
    other = client_of_another_process(api, background)
    topic = api.topic(shards=1)
    with background.clock.stopped():
        other.get(topic.path).expect(200)
        api.put(topic.path, {"shards": 8, "key_shards": 8}).expect(200)
        ids = [topic.produce("x", ordering_key=key, delay_seconds=1)["id"] for key in "abcdefgh"]
        background.pass_time(1)
        messages = [other.get(f"{topic.path}/messages/{id}").expect(200) for id in ids]
        assert other.get(topic.path).expect(200)["shards"] == 1, "what it shows may be old"
    assert len({message["shard"] for message in messages}) > 1


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
