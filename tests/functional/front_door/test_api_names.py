"""Names, paths, queries and headers that a request may have."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

import pytest

from app import app
from chalicelib.api.problems import EVERYWHERE, ONLY_HTTPS
from tests.support.http import Client

GOOD = [
    "a",
    "A",
    "0",
    "a.b",
    "a..b",
    "a-",
    "a_",
    "9.-_",
    "orders.eu-1",
    "null",
    "undefined",
    "true",
    "__proto__"[2:],
    "x" * 128,
]
BAD = [
    ".", "..", "...", "-a", "_a", ".a", "a b", " a", "a ", "a/b", "a\\b", "a:b", "a#b", "a?b", "a%b", "a+b", "a*", "ä",
    "a\u0301", "😀", "\u202ea", "a\x00", "\x00", "a\n", "a\r\nX: y", "'", '"', "<a>", "{topic}", "$a", "~", "a,b",
    "a;b", "x" * 129, "x" * 5000, "\uff41", "%2e%2e", "..%2f..", "%00", "%ff", "a%0a",
]  # fmt: skip
PATHS = [
    ("PUT", "/v1/topics/{}"),
    ("GET", "/v1/topics/{}"),
    ("DELETE", "/v1/topics/{}?confirm=x"),
    ("POST", "/v1/topics/{}/messages"),
    ("POST", "/v1/topics/{}/messages/batch"),
    ("GET", "/v1/topics/{}/messages"),
    ("GET", "/v1/topics/{}/messages/x"),
    ("POST", "/v1/publish/{}"),
    ("PUT", "/v1/topics/fine/groups/{}"),
    ("GET", "/v1/topics/fine/groups/{}"),
    ("POST", "/v1/topics/fine/groups/{}/receive"),
    ("POST", "/v1/topics/fine/groups/{}/ack"),
    ("POST", "/v1/topics/fine/groups/{}/seek"),
    ("PUT", "/v1/topics/fine/groups/g/consumers/{}"),
    ("GET", "/v1/topics/fine/groups/g/consumers/{}"),
    ("POST", "/v1/topics/fine/groups/g/consumers/{}/heartbeat"),
    ("DELETE", "/v1/topics/fine/groups/g/consumers/{}"),
]


@pytest.fixture(scope="module")
def fine(api: Client) -> Client:
    api.put("/v1/topics/fine").expect(201)
    api.put("/v1/topics/fine/groups/g").expect(201)
    return api


@pytest.mark.parametrize("name", GOOD)
def test_a_name_of_letters_digits_dots_lines_is_taken_everywhere(fine: Client, name: str) -> None:
    path = f"/v1/topics/{name}"
    assert fine.put(path).expect(201)["topic"] == name
    assert fine.put(f"{path}/groups/{name}").expect(201)["group"] == name
    assert fine.put(f"{path}/groups/{name}/consumers/{name}").expect(201)["consumer"] == name
    assert fine.get(f"{path}/groups/{name}/consumers/{name}").expect(200)["topic"] == name


@pytest.mark.parametrize("escape", ["whole", "usual"])
@pytest.mark.parametrize("name", BAD)
def test_a_name_that_is_none_is_refused_everywhere_and_not_repeated(
    fine: Client, name: str, escape: str
) -> None:
    escaped_name = (
        "".join(f"%{byte:02X}" for byte in name.encode()) if escape == "whole" else quote(name, safe="")
    )
    for method, path in PATHS:
        reply = fine.call(method, path.format(escaped_name), {"body": 1} if method != "GET" else None)
        problem = reply.refused(reply.status)
        assert reply.status in (400, 404), (method, path)
        assert problem["code"] in {"INVALID_NAME", "ROUTE_NOT_FOUND"}
        assert problem["code"] == "ROUTE_NOT_FOUND" or "must match [A-Za-z0-9]" in problem["detail"]
        if len(name) > 3:
            assert name not in reply.raw.decode()


@pytest.mark.parametrize("raw", ["\x00", "ä", "a\tb", "\ud800", "a\x7f", "%", "%4", "%zz", "a%"])
def test_a_path_that_is_no_path_is_refused(fine: Client, raw: str) -> None:
    for method, path in PATHS:
        reply = fine.call(method, path.format(raw), {"body": 1} if method != "GET" else None)
        assert reply.status in (400, 404)
        reply.refused(reply.status)


@pytest.mark.parametrize("name", ["", "..", "a b", "ä", "x" * 129, "a\x00", "a\n"])
def test_a_consumer_in_a_body_must_be_a_name_too(fine: Client, name: str) -> None:
    body = {"consumer": name}
    problem = fine.post("/v1/topics/fine/groups/g/receive", body).refused(400, "VALIDATION")
    assert problem["errors"][0]["path"] == "consumer"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/topics?{}"),
        ("GET", "/v1/topics/fine?{}"),
        ("PUT", "/v1/topics/fine?{}"),
        ("DELETE", "/v1/topics/fine?confirm=no&{}"),
        ("POST", "/v1/topics/fine/messages?{}"),
        ("GET", "/v1/topics/fine/messages?{}"),
        ("POST", "/v1/publish/fine?{}"),
        ("POST", "/v1/topics/fine/groups/g/receive?{}"),
        ("GET", "/v1/health?{}"),
        ("GET", "/v1/openapi.json?{}"),
        ("GET", "/v1/tokens?{}"),
        ("GET", "/v1/ladders/jmq?{}"),
    ],
)
@pytest.mark.parametrize(
    "query", ["limt=5", "LIMIT=5", "x", "=1", "%00=1", "delay_seconds=30", "x=1&x=2", "%FF=%FF"]
)
def test_an_unknown_query_parameter_is_refused(fine: Client, method: str, path: str, query: str) -> None:
    reply = fine.call(method, path.format(query), {"body": 1} if method != "GET" else None)
    reply.refused(400, "UNKNOWN_PARAMETER")
    assert fine.get("/v1/topics/fine").expect(200)["stats"]["accepted"] == 0


@pytest.mark.parametrize(
    "path",
    [
        "/v1/topics?limit=5&limit=6",
        "/v1/topics/fine/groups?page_token=a&page_token=a",
        "/v1/tokens?limit=1&limit=1",
    ],
)
def test_a_query_parameter_given_twice_is_refused(fine: Client, path: str) -> None:
    fine.get(path).refused(400, "VALIDATION")


def test_confirm_given_twice_does_not_delete(fine: Client) -> None:
    topic = fine.topic()
    fine.delete(f"{topic.path}?confirm={topic.name}&confirm={topic.name}").refused(400)
    fine.get(topic.path).expect(200)


def event(headers: dict[str, list[str]], **context: str) -> dict[str, Any]:
    """As API Gateway sends it: of a repeated header, the last in `headers`, all in `multiValueHeaders`."""
    return {
        "headers": {name: values[-1] for name, values in headers.items()},
        "multiValueHeaders": headers,
        "requestContext": {"httpMethod": "GET", "resourcePath": "/v1/ladders/{name}", **context},
        "pathParameters": {"name": "jmq"},
        "multiValueQueryStringParameters": None,
        "stageVariables": None,
        "body": None,
        "isBase64Encoded": False,
    }


@pytest.mark.parametrize(
    "name",
    ["Authorization", "authorization", "Content-Type", "Headrace-Key", "headrace-delay-seconds", "ce-id"],
)
def test_what_counts_once_is_refused_if_it_is_given_twice(name: str) -> None:
    answer = app(event({name: ["one", "two"]}), None)
    assert answer["statusCode"] == 400
    assert json.loads(base64.b64decode(answer["body"]))["code"] == "BAD_REQUEST"
    assert answer["headers"].items() >= EVERYWHERE.items()


@pytest.mark.parametrize("path", ["/v1/ladders/{name}", "/nowhere"])
def test_on_aws_browsers_are_told_to_stay_with_https(path: str) -> None:
    on_aws = event({"Accept": ["*/*"]}, domainName="q.example.com")
    on_aws["requestContext"]["resourcePath"] = path
    assert app(on_aws, None)["headers"].items() >= ONLY_HTTPS.items()
    assert ONLY_HTTPS.keys().isdisjoint(app(event({"Accept": ["*/*"]}), None)["headers"])


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
