"""Names in every position of a path, and query parameters."""

from __future__ import annotations

from urllib.parse import quote

import pytest

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
