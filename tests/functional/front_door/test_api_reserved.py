"""Refused requests: reserved headers, invisible characters, ids that are not text."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.http import Client

RESERVED = [
    *("Host", "Authorization", "Content-Encoding", "content-length", "Transfer-Encoding", "Connection", "TE"),
    *("Forwarded", "X-Forwarded-For", "x-forwarded-anything", "Cookie", "Proxy-Authorization", "Upgrade"),
    *("X_Forwarded_For", "Webhook_Signature", "ce_id", "X-HTTP-Method"),
    *("X-Original-URL", "X-HTTP-Method-Override", "CF-Connecting-IP", "True-Client-IP", "Remote_User"),
    *("webhook-id", "svix-signature", "ce-id", "Ce-Type", "Headrace-Replay"),
]


@pytest.mark.parametrize("name", RESERVED)
def test_a_reserved_header_is_refused_on_every_way_in(api: Client, name: str) -> None:
    topic = api.topic()
    message = {"body": 1, "headers": {"x-own": "1", name: "v"}}
    problem = api.post(f"{topic.path}/messages", message).refused(422, "HEADER_RESERVED")
    assert name in problem["detail"]
    [result] = api.post(f"{topic.path}/messages/batch", {"messages": [message]}).expect(200)["results"]
    assert result["error"]["code"] == "HEADER_RESERVED"
    transaction = {"message": message}
    api.post(f"{topic.path}/transactions", transaction).refused(422, "HEADER_RESERVED")
    raw = {f"Headrace-Forward-{name}": "v"}
    api.call("POST", f"/v1/publish/{topic.name}", raw=b"x", headers=raw).refused(422, "HEADER_RESERVED")
    assert topic.accepted == 0


def test_a_message_in_the_log_is_not_given_a_reserved_header_later(api: Client) -> None:
    topic = api.topic()
    id = api.post(f"{topic.path}/messages", {"body": 1}).expect(201)["id"]
    change = {"headers": {"X-Forwarded-For": "1.2.3.4"}}
    api.call("PATCH", f"{topic.path}/messages/{id}", change).refused(422, "HEADER_RESERVED")


def test_two_spellings_of_a_header_are_refused_on_every_way_in(api: Client) -> None:
    topic = api.topic()
    message = {"body": 1, "headers": {"X-A": "1", "x-a": "2"}}
    refusal = api.post(f"{topic.path}/messages", message).refused(400, "VALIDATION")
    assert [issue["path"] for issue in refusal["errors"]] == ["headers.x-a"]
    batch = {"messages": [{"body": 0}, message]}
    results = api.post(f"{topic.path}/messages/batch", batch).expect(200)["results"]
    assert results[1]["error"]["errors"][0]["path"] == "messages[1].headers.x-a"
    api.post(f"{topic.path}/transactions", {"message": message}).refused(400, "VALIDATION")
    change = {"headers": message["headers"]}
    api.call("PATCH", f"{topic.path}/messages/{results[0]['id']}", change).refused(400, "VALIDATION")
    assert topic.accepted == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"tag": "a\x00b"},
        {"keys": ["a\x1b[2Jb"]},
        {"keys": ["a\nb"]},
        {"ordering_key": "\x7f"},
        {"keys": ["a\x9b2Jb"]},
        {"headers": {"x": "a\x85b"}},
        {"dedup_id": "a\x00"},
        {"dedup_id": "   "},
        {"keys": [" "]},
    ],
)
def test_control_characters_and_blanks_are_refused(api: Client, fields: dict[str, Any]) -> None:
    topic = api.topic()
    api.post(f"{topic.path}/messages", {"body": 1, **fields}).refused(400, "VALIDATION")
    assert topic.accepted == 0


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", "\x00", " "])
def test_a_tokens_name_can_be_read(api: Client, name: str) -> None:
    api.post("/v1/tokens", {"name": name, "scopes": ["produce"]}).refused(400, "VALIDATION")


@pytest.mark.parametrize("id", ["%ff", "%fe", "a%C3", "%ED%A0%80", "a%00", "a%0Ab"])
def test_an_event_whose_id_is_no_text_is_refused(api: Client, id: str) -> None:
    topic = api.topic()
    event = {"ce-specversion": "1.0", "ce-id": id, "ce-source": "/s", "ce-type": "t"}
    api.call("POST", f"/v1/publish/{topic.name}", raw=b"x", headers=event).refused(400, "VALIDATION")
    assert topic.accepted == 0


def test_answers_are_kept_by_nobody_and_guessed_by_nobody(api: Client) -> None:
    for path in ("/v1/topics?limit=1", "/v1/health", "/v1/nowhere", "/v1/topics/nobody", "/docs"):
        headers = {name.lower(): value for name, value in api.get(path).headers.items()}
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["cache-control"] == "no-store", path


def test_a_subscribers_url_is_shown_whole_to_an_admin_only(api: Client) -> None:
    topic = api.topic()
    api.put(f"{topic.path}/groups/g").expect(201)
    consumers = f"{topic.path}/groups/g/consumers"
    url = "http://127.0.0.1:9/hook?key=s3cr3t"
    assert api.put(f"{consumers}/c", {"url": url}).expect(201)["url"] == url
    for scope in ("produce", "consume"):
        token = api.post("/v1/tokens", {"name": "t", "scopes": [scope]}).expect(201)
        holder = api.with_token(token["token"])
        for path in (f"{consumers}/c", consumers):
            reply = holder.get(path)
            assert b"s3cr3t" not in reply.raw
            assert b"http://127.0.0.1:9/" in reply.raw
    assert api.get(f"{consumers}/c").expect(200)["url"] == url


def test_a_secret_lives_out_its_day_however_often_it_is_rotated(api: Client) -> None:
    topic = api.topic()
    api.put(f"{topic.path}/groups/g").expect(201)
    consumer = f"{topic.path}/groups/g/consumers/c"
    api.put(consumer, {"url": "http://127.0.0.1:9/"}).expect(201)
    for _ in range(8):
        api.post(f"{consumer}/rotate-secret").expect(200)
    api.post(f"{consumer}/rotate-secret").refused(422, "TOO_MANY_SECRETS")
