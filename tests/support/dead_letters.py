"""Dead letters over HTTP, in few words: make them, see them, send them again."""

from __future__ import annotations

from typing import Any

from tests.support.http import Group, Reply, Topic


def letters(group: Group, query: str = "") -> list[Any]:
    items: list[Any] = group.api.get(f"{group.path}/dead-letters?{query}").expect(200)["items"]
    return items


def letter(group: Group, message_id: str) -> Any:
    return group.api.get(f"{group.path}/dead-letters/{message_id}").expect(200)


def edit(group: Group, message_id: str, body: Any) -> Reply:
    return group.api.call("PATCH", f"{group.path}/dead-letters/{message_id}", {"body": body})


def redrive(group: Group, **which: Any) -> int:
    return int(group.api.post(f"{group.path}/dead-letters/redrive", which).expect(200)["redriven"])


def retry_now(group: Group, message_id: str) -> Reply:
    return group.api.post(f"{group.topic.path}/messages/{message_id}/retry", {"group": group.name})


def bury(group: Group, reason: str = "no", **fields: Any) -> list[Any]:
    if messages := group.receive(200, **fields):
        assert set(group.nack(*messages, dead_letter=True, reason=reason)) == {"ok"}
    return messages


def receive_again(group: Group, **fields: Any) -> list[Any]:
    """What is received again; a lane that was just empty is not looked at for half a second."""
    return group.receive(wait_seconds=1, **fields)


def bodies(group: Group, **fields: Any) -> list[Any]:
    return [message["body"] for message in receive_again(group, **fields)]


def produce_and_bury(topic: Topic, group: Group, *bodies: Any, **fields: Any) -> list[Any]:
    """The messages that were sent and then buried."""
    messages = [topic.produce(body, **fields) for body in bodies]
    assert len(bury(group)) == len(messages)
    return messages
