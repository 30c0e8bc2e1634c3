"""Large messages and many of them: what Lambda's answer can hold, and whole bodies end to end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import app
from tests.support.http import Client, Group

LAMBDA_ANSWER_BYTES = 6 * 1024 * 1024
MEGABYTE = 1024 * 1024


@pytest.fixture
def sizes(api: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The bytes of every answer as Lambda would carry it. No test here may exceed what it can."""
    sizes_seen: list[int] = []
    kind: Any = type(app.app)
    answer = kind.__call__

    def measured(self: Any, event: Any, context: Any) -> Any:
        response = answer(self, event, context)
        sizes_seen.append(len(json.dumps({**response, "body": as_text(response["body"])})))
        return response

    monkeypatch.setattr(kind, "__call__", measured)
    yield sizes_seen
    assert sizes_seen
    assert max(sizes_seen) <= LAMBDA_ANSWER_BYTES


def as_text(body: bytes | str) -> str:
    return body.decode() if isinstance(body, bytes) else body


def drain(group: Group) -> list[Any]:
    messages = []
    while batch := group.receive(1000, lease_seconds=3600):
        messages += batch
    return messages


def test_a_body_of_4_megabytes_goes_through_where_its_topic_allows_it(api: Client, sizes: list[int]) -> None:
    topic = api.topic(max_body_bytes=4 * MEGABYTE)
    group = topic.group()
    body = "ü" * (2 * MEGABYTE - 1)  # with its quotes: exactly 4 MB of JSON
    raw = json.dumps({"body": body}, ensure_ascii=False).encode()
    headers = {"Content-Type": "application/json"}
    message = api.call("POST", f"{topic.path}/messages", raw=raw, headers=headers).expect(201)
    [claimed_message] = group.receive()
    assert claimed_message["body"] == body
    assert group.ack(claimed_message) == ["ok"]
    assert api.get(f"{topic.path}/messages/{message['id']}").expect(200)["body"] == body


def test_one_byte_more_than_4_megabytes_is_refused(api: Client) -> None:
    topic = api.topic(max_body_bytes=4 * MEGABYTE)
    api.post(f"{topic.path}/messages", {"body": "x" * (4 * MEGABYTE - 1)}).refused(413, "BODY_TOO_LARGE")
    topic.publish(b"x" * (4 * MEGABYTE + 1)).refused(413, "BODY_TOO_LARGE")
    assert topic.accepted == 0


def test_a_body_of_4_megabytes_of_quotes_fits_an_answer(api: Client, sizes: list[int]) -> None:
    topic = api.topic(max_body_bytes=4 * MEGABYTE)
    group = topic.group()
    body = '"' * (2 * MEGABYTE - 1)
    topic.produce(body)
    assert group.bodies() == [body]


def test_large_messages_of_several_shards_do_not_add_up_to_too_much(api: Client, sizes: list[int]) -> None:
    topic = api.topic(shards=4, max_body_bytes=4 * MEGABYTE)
    group = topic.group()
    for shard in range(4):
        topic.produce("x" * (3 * MEGABYTE), shard=shard)
    assert len(drain(group)) == 4


def test_80_bodies_of_200_kilobytes_come_in_answers_that_fit(api: Client, sizes: list[int]) -> None:
    topic = api.topic(shards=2)
    group = topic.group()
    for _ in range(4):
        topic.batch([{"body": "x" * 200_000} for _ in range(20)])
    messages = drain(group)
    assert len({m["id"] for m in messages}) == len(messages) == 80


def test_many_large_prepared_messages_come_in_answers_that_fit(api: Client, sizes: list[int]) -> None:
    topic = api.topic()
    ids = [
        api.post(f"{topic.path}/transactions", {"message": {"body": "x" * 190_000}}).expect(201)["message_id"]
        for _ in range(34)
    ]
    pages = api.pages(f"{topic.path}/messages?status=PREPARED", 200)
    assert sorted(message["id"] for page in pages for message in page) == sorted(ids)


def test_many_large_dead_letters_are_merged_in_answers_that_fit(api: Client, sizes: list[int]) -> None:
    group = api.topic(shards=1).group()
    ids = [group.topic.produce({"n": n, "text": "x" * 150_000})["id"] for n in range(30)]
    while messages := group.receive(30):
        group.nack(*messages, dead_letter=True)
    path, change = f"{group.path}/dead-letters", {"patch": {"more": "y" * 100_000}}
    api.call("PATCH", path, {**change, "ids": ids}).refused(413, "BATCH_TOO_LARGE")
    assert "more" not in api.get(f"{path}/{ids[0]}").expect(200)["body"], "nothing was done"
    merged, query = list[str](), "?limit=200"
    while query:
        page = api.call("PATCH", f"{path}{query}", change).expect(200)
        merged += [item["id"] for item in page["items"] if item["changed"]]
        query = f"?limit=200&page_token={page['next_page_token']}" if "next_page_token" in page else ""
    assert merged == ids
