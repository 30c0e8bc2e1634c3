"""Consumers that are called: their latest attempts, a signed test, and a secret that ends at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.functional.delivery.receivers import Receiver
from tests.support.background import Background
from tests.support.http import Client, Group
from tests.support.push import Inbox
from tests.support.receiver import is_signed


def subscribe(group: Group, **fields: Any) -> Any:
    return group.api.put(f"{group.path}/consumers/c", fields).expect(201)


def attempts(group: Group, query: str = "") -> Any:
    return group.api.get(f"{group.path}/consumers/c/attempts{query}").expect(200)


def test_attempts_are_told_newest_first_with_what_came_of_them(
    api: Client, background: Background, receiver: Receiver
) -> None:
    topic = api.topic(shards=2, retry={"max_attempts": 2, "ladder": [60], "jitter": 0})
    group = topic.group()
    subscribe(group, url=receiver.url)
    assert attempts(group) == {"items": [], "p50_ms": None, "p95_ms": None, "complete": True}
    topic.produce("taken", shard=0)
    background.push(topic)
    receiver.status = 500
    message = topic.produce("fails", shard=1)
    background.push(topic)
    background.later(topic, 61)
    page = attempts(group)
    assert [(each["outcome"], each["attempt"], each["detail"]) for each in page["items"]] == [
        ("DEAD", 2, "HTTP 500"),
        ("RETRY", 1, "HTTP 500"),
        ("SUCCESS", 1, None),
    ]
    assert [(each["shard"], each["offset"]) for each in page["items"]][:2] == [(1, message["offset"])] * 2
    assert 0 <= page["p50_ms"] <= page["p95_ms"]
    assert page["complete"]
    assert len(attempts(group, "?limit=2")["items"]) == 2
    assert not attempts(group, "?limit=2")["complete"]


def test_a_test_is_signed_and_shows_both_sides(api: Client, receiver: Receiver) -> None:
    group = api.topic().group()
    secret = subscribe(group, url=receiver.url)["secret"]
    receiver.headers, receiver.body = {"X-Shop": "7"}, b"thanks" + b"x" * 2000
    view = api.post(f"{group.path}/consumers/c/test").expect(200)
    [request] = receiver.seen
    assert is_signed(secret, request.headers, request.body)
    assert request.headers["ce-type"] == "headrace.test"
    assert request.headers["ce-id"] == request.headers["webhook-id"]
    assert request.headers["ce-id"].startswith("test-")
    assert "headrace-attempt" not in request.headers
    assert view["ok"]
    assert view["request"]["url"] == receiver.url
    assert view["request"]["body"].encode() == request.body
    headers = {name.lower(): value for name, value in view["request"]["headers"].items()}
    assert request.headers.items() >= headers.items()
    answer = view["answer"]
    assert (answer["status"], answer["headers"]["x-shop"]) == (200, "7")
    assert answer["body"] == "thanks" + "x" * 1018
    assert answer["body_bytes"] == 2006


@pytest.mark.parametrize(
    ("status", "ok", "detail"), [(500, False, "HTTP 500"), (410, False, "HTTP 410"), (204, True, "HTTP 204")]
)
def test_a_test_changes_nothing(api: Client, receiver: Receiver, status: int, ok: bool, detail: str) -> None:
    group = api.topic().group()
    subscribe(group, url=receiver.url)
    before = api.get(f"{group.path}/consumers/c").expect(200)
    receiver.status = status
    for _ in range(12):  # more failures than open a circuit
        view = api.post(f"{group.path}/consumers/c/test").expect(200)
    assert (view["ok"], view["detail"]) == (ok, detail)
    assert api.get(f"{group.path}/consumers/c").expect(200) == before
    assert attempts(group)["items"] == []


def test_where_nobody_answers_a_test_says_why(api: Client) -> None:
    group = api.topic().group()
    subscribe(group, url="http://127.0.0.1:1/")
    view = api.post(f"{group.path}/consumers/c/test").expect(200)
    assert (view["ok"], view["answer"], view["detail"]) == (False, None, "no connection")


def test_who_is_no_admin_sees_no_path_and_no_words_of_the_answer(api: Client, receiver: Receiver) -> None:
    group = api.topic().group()
    subscribe(group, url=receiver.url)
    receiver.body = b"the answer's own secret"
    token = api.post("/v1/tokens", {"name": "t", "scopes": ["consume"]}).expect(201)["token"]
    reply = api.with_token(token).post(f"{group.path}/consumers/c/test")
    view = reply.expect(200)
    assert view["ok"]
    assert view["answer"] == {"status": 200, "headers": None, "body": None, "body_bytes": 23}
    assert "from=headrace" not in reply.raw.decode()
    assert "own secret" not in reply.raw.decode()


def test_a_function_is_tested_by_a_batch_without_messages(api: Client) -> None:
    group = api.topic().group()
    subscribe(group, function="charge")
    view = api.post(f"{group.path}/consumers/c/test").expect(200)
    assert (view["ok"], view["request"]["method"], view["request"]["url"]) == (True, "INVOKE", "charge")
    payload = json.loads(view["request"]["body"])
    assert (payload["test"], payload["messages"], payload["consumer"]) == (True, [], "c")
    assert json.loads(view["answer"].pop("body")) == {"batchItemFailures": []}
    assert view["answer"] == {"status": None, "headers": {}, "body_bytes": 25}


def test_only_who_is_called_is_tested(api: Client) -> None:
    group = api.topic().group()
    group.register("w")
    api.post(f"{group.path}/consumers/w/test").refused(422, "TEST_NEEDS_URL")
    api.post(f"{group.path}/consumers/nobody/test").refused(404, "CONSUMER_NOT_FOUND")


def test_who_went_meanwhile_is_not_called(
    api: Client, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = api.topic().group()
    subscribe(group, url=receiver.url)
    ask = Inbox.ask

    def too_late(self: Inbox, *call: Any) -> Any:
        monkeypatch.undo()
        api.delete(f"{group.path}/consumers/c").expect(204)
        return ask(self, *call)

    monkeypatch.setattr(Inbox, "ask", too_late)
    api.post(f"{group.path}/consumers/c/test").refused(409, "CHANGED_MEANWHILE")
    assert receiver.seen == []


def test_an_old_secret_signs_until_the_overlap_ends(api: Client, receiver: Receiver) -> None:
    group = api.topic().group()
    first = subscribe(group, url=receiver.url)["secret"]
    rotate = f"{group.path}/consumers/c/rotate-secret"
    second = api.post(rotate, {"overlap_seconds": 3600}).expect(200)["secret"]
    assert api.get(f"{group.path}/consumers/c").expect(200)["overlap_until_at"]
    api.post(f"{group.path}/consumers/c/test").expect(200)
    request = receiver.seen.pop()
    assert all(is_signed(each, request.headers, request.body) for each in (first, second))
    third = api.post(rotate, {"overlap_seconds": 0}).expect(200)["secret"]
    assert api.get(f"{group.path}/consumers/c").expect(200)["overlap_until_at"] is None
    api.post(f"{group.path}/consumers/c/test").expect(200)
    [request] = receiver.seen
    assert [is_signed(each, request.headers, request.body) for each in (first, second, third)] == [
        False,
        False,
        True,
    ]
    api.post(rotate, {"overlap_seconds": 7 * 86_400 + 1}).refused(400, "VALIDATION")
