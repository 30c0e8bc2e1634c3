"""Every field of every request: wrong types, unknown names, values out of range. Nothing of it is stored."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import app  # noqa: F401  its import registers the calls
from chalicelib.api.calls import CALLS
from chalicelib.domain import notice
from chalicelib.domain.limits import MAX_OFFSET
from tests.support import settings
from tests.support.http import Client, Group, Topic

TYPES: dict[str, list[Any]] = {
    "text": ["s3cr3t-value"],
    "int": [7],
    "float": [1.5],
    "bool": [True],
    "list": [[], [1]],
    "dict": [{}, {"a": 1}],
    "null": [None],
}

# Per call: its path, a body that is fine, and the types each field takes; `-`: it takes none of the
# values of TYPES (one of several words, a position, or receipts).
_REQUIRED: dict[str, dict[str, Any]] = {"batch": {"messages": [1]}, "ack": {"receipts": ["x"]}}
SHAPES: dict[str, tuple[str, str, dict[str, Any], dict[str, str]]] = {
    "topic": (
        "PUT", "", {},
        {row.name: settings.shape(row) for row in settings.TOPIC} | {"key_shards": "int"},
    ),
    "message": (
        "POST", "/messages", {"body": 1},
        {"body_base64": "text", "content_type": "null", "keys": "list", "tag": "text null",
         "tenant": "text null", "ordering_key": "text null", "shard": "int null", "priority": "int null",
         "headers": "dict", "delay_seconds": "int null", "deliver_at": "null", "sent_at": "null",
         "expires_in_seconds": "int null", "dedup_id": "text null", "dedup_until": "text", "retry": "dict null",
         "callback_url": "null"},
    ),
    "batch": ("POST", "/messages/batch", {}, {"messages": "list"}),
    "group": (
        "PUT", "/groups/g", {}, {row.name: settings.shape(row) for row in settings.GROUP},
    ),
    "consumer": (
        "PUT", "/groups/g/consumers/c", {},
        {"url": "text null", "secret": "text null", "function": "text null",
         "timeout_seconds": "int null", "headers": "dict null", "reject_statuses": "list", "transform": "text null",
         "batch_wait_seconds": "int", "expires_after_seconds": "int null", "instance": "text null",
         "from": "text null"},
    ),
    "receive": (
        "POST", "/groups/g/receive", {},
        {"max": "int", "wait_seconds": "int float", "consumer": "text null", "instance": "text null",
         "lease_seconds": "int null", "receive_id": "text null", "ack": "list null",
         "run": "bool"},
    ),
    "ack": ("POST", "/groups/g/ack", {}, {"receipts": "-"}),
    "nack": (
        "POST", "/groups/g/nack", {"receipts": ["x"]},
        {"receipts": "-", "delay_seconds": "int", "dead_letter": "bool", "untried": "bool",
         "reason": "text null"},
    ),
    "extend": (
        "POST", "/groups/g/extend", {"receipts": ["x"], "lease_seconds": 5},
        {"receipts": "-", "lease_seconds": "int"},
    ),
    "seek": ("POST", "/groups/g/seek", {"to": "earliest"}, {"to": "int", "shard": "int null", "consumer": "text null"}),
    "redrive": (
        "POST", "/groups/g/dead-letters/redrive", {},
        {"ids": "null", "filter": "dict null", "limit": "int", "page_token": "text", "dry_run": "bool",
         "plan": "text", "rate": "int null"},
    ),
    "delete dead letters": (
        "POST", "/groups/g/dead-letters/delete", {},
        {"ids": "null", "filter": "dict null", "limit": "int", "page_token": "text", "dry_run": "bool",
         "plan": "text", "confirm": "text null"},
    ),
    "retry many": (
        "POST", "/groups/g/retry", {},
        {"ids": "null", "filter": "dict null", "limit": "int", "page_token": "text", "dry_run": "bool",
         "consumer": "text null"},
    ),
    "pause": ("POST", "/groups/g/pause", {}, {"until": "text null"}),
    "retry now": ("POST", "/messages/x/retry", {"group": "g"}, {"group": "text"}),
    "edit": ("PATCH", "/groups/g/dead-letters/x", {"body": 1}, {}),
}  # fmt: skip
WRONG = [
    (call, field, value)
    for call, (_, _, _, fields) in SHAPES.items()
    for field, good in fields.items()
    for kind, values in TYPES.items()
    if kind not in good
    for value in values
]
NESTED = [
    ("topic", {"retry": {"max_attempts": "5"}}, "retry.max_attempts"),
    ("topic", {"retry": {"ladder": "nobody"}}, "retry.ladder"),
    ("topic", {"retry": {"ladder": [1, "2"]}}, "retry.ladder[1]"),
    ("topic", {"retry": {"ladder": [0]}}, "retry.ladder[0]"),
    ("topic", {"retry": {"laddr": 1}}, "retry.laddr"),
    ("group", {"retry": {"jitter": 2}}, "retry.jitter"),
    ("message", {"retry": {"max_attempts": 0}}, "retry.max_attempts"),
    ("message", {"keys": ["ok", 1]}, "keys[1]"),
    ("message", {"headers": {"a": 1}}, "headers[...]"),
    ("message", {"headers": {"a b": "x"}}, "headers"),
    ("message", {"headers": {"a": "x\r\ny"}}, "headers[...]"),
    ("ack", {"receipts": ["x", 5]}, "receipts[1]"),
    ("redrive", {"ids": ["x", 5]}, "ids[1]"),
    ("redrive", {"filter": {"reasn": "REJECTED"}}, "filter.reasn"),
    ("redrive", {"filter": {"tag": "a b"}}, "filter.tag"),
    ("redrive", {"filter": {"since": "s3cr3t-value"}}, "filter.since"),
    ("redrive", {"filter": {"reason": "s3cr3t-value"}}, "filter.reason"),
]


@pytest.fixture(scope="module")
def group(api: Client) -> Iterator[Group]:
    topic = api.topic()
    group = topic.group()
    topic.produce("here before")
    before = api.get(group.path).expect(200), api.get(topic.path).expect(200)
    yield group
    after = api.get(group.path).expect(200), api.get(topic.path).expect(200)
    for view in (*before, *after):
        for counts in (view, view.get("stats", {}).get("groups", {}).get("g", {})):
            counts.pop("oldest_age_seconds", None)
    assert after == before
    api.get(f"{group.path}/consumers/c").refused(404)


@pytest.mark.parametrize("call", SHAPES)
def test_each_field_of_a_body_is_tried(call: str) -> None:
    method, path, _, fields = SHAPES[call]
    place = f"/v1/topics/t{path}"
    (body,) = {
        each.body
        for each in CALLS
        if each.method == method and re.fullmatch(re.sub(r"{\w+}", "[^/]+", each.path), place)
    }
    assert body
    names = {field.encode_name for field in msgspec.structs.fields(body)}
    assert names - {"body"} == fields.keys(), "`body` may be any JSON"


def attempt(topic: Topic, call: str, change: dict[str, Any]) -> Any:
    method, path, good, _ = SHAPES[call]
    reply = topic.api.call(method, topic.path + path, {**good, **change})
    assert "s3cr3t-value" not in reply.raw.decode()
    return reply.refused(400, "VALIDATION")


@pytest.mark.parametrize(("call", "field", "value"), WRONG)
def test_a_field_of_the_wrong_type_is_refused_and_named(
    group: Group, call: str, field: str, value: Any
) -> None:
    problem = attempt(group.topic, call, {field: value})
    assert problem["errors"][0]["path"].split("[")[0] == field


@pytest.mark.parametrize("call", sorted(SHAPES))
def test_an_unknown_field_is_refused_and_named(group: Group, call: str) -> None:
    fields_required = _REQUIRED.get(call, {})
    fine = {**SHAPES[call][2], **fields_required}
    problem = attempt(group.topic, call, {**fine, "delay_secnds": "s3cr3t-value"})
    assert {"path": "delay_secnds", "issue": "unknown field"} in problem["errors"]


@pytest.mark.parametrize(("call", "change", "path"), NESTED)
def test_what_is_wrong_inside_a_field_is_named_too(
    group: Group, call: str, change: dict[str, Any], path: str
) -> None:
    assert attempt(group.topic, call, change)["errors"][0]["path"] == path


@pytest.mark.parametrize(
    "change",
    [
        {"name": 5}, {"name": ""}, {"name": "x" * 129}, {"name": None}, {"scopes": []}, {"scopes": ["root"]},
        {"rate_limit": 0}, {"rate_limit": "5"},
        {"scopes": "admin"}, {"scopes": ["admin"] * 4}, {"expires_in_days": 0}, {"expires_in_days": 3651},
        {"expires_in_days": "1"}, {"topics": None}, {"id": "x"}, {"secret": "x"}, {"token": "hr_a_b"},
    ],
)  # fmt: skip
def test_a_token_that_cannot_be_is_not_made(api: Client, change: dict[str, Any]) -> None:
    before = len([t for page in api.pages("/v1/tokens", 200) for t in page])
    api.post("/v1/tokens", {"name": "t", "scopes": ["produce"], **change}).refused(400, "VALIDATION")
    assert len([t for page in api.pages("/v1/tokens", 200) for t in page]) == before


def test_either_a_body_or_a_body_in_base64(group: Group) -> None:
    for change in ({"body_base64": "AA=="}, {"content_type": "text/plain"}):
        attempt(group.topic, "message", change)


@pytest.mark.parametrize(
    "text", ["A", "AA=", "AAA", "A===", "AA==AA==", "A A=", "AA==\n", "-_-_", "äöü=", "AAA=\x00"]
)
def test_what_is_no_base64_is_refused(api: Client, text: str) -> None:
    topic = api.topic()
    problem = api.post(f"{topic.path}/messages", {"body_base64": text}).refused(400, "VALIDATION")
    assert problem["errors"][0]["path"] == "body_base64"
    assert topic.accepted == 0


@pytest.mark.parametrize("number", [2**31, 2**63, 2**64, 10**30, -1, -(2**63), -(10**30)])
def test_a_number_far_out_of_range_is_refused_everywhere(group: Group, number: int) -> None:
    for call, (_, _, _, fields) in SHAPES.items():
        for field, good in fields.items():
            free = number > 0 and (
                field == "shard"
                or (field in {"alarm_backlog", "to"} and number <= MAX_OFFSET)
                or (call, field) == ("message", "delay_seconds")  # 422 DELAY_TOO_LONG, as a far `deliver_at`
            )
            if "int" in good and not free:
                attempt(group.topic, call, {field: number})


@pytest.mark.parametrize(
    ("path", "body", "at", "values"),
    [
        ("", {"mode": "s3cr3t"}, "mode", "queue, serial, broadcast"),
        ("", {"retry": {"ladder": "s3cr3t"}}, "retry.ladder", "fixed-30, jmq, notify, rocketmq, exponential"),
        ("/groups/g", {"payload": "s3cr3t"}, "payload", "binary, structured, batch"),
        ("/v1/tokens", {"name": "t", "scopes": ["admin", "s3cr3t"]}, "scopes[1]", "produce, consume, admin"),
        ("/v1/schedules/s", {"missed": "s3cr3t"}, "missed", "skip, one, all"),
        ("/v1/events", {"topic": "t", "types": ["s3cr3t"]}, "types[0]", ", ".join(notice.TYPES)),
    ],
)
def test_where_few_values_are_allowed_the_refusal_lists_them(
    group: Group, path: str, body: Any, at: str, values: str
) -> None:
    method = "POST" if path == "/v1/tokens" else "PUT"
    path = path if path.startswith("/v1") else group.topic.path + path
    reply = group.api.call(method, path, body)
    assert "s3cr3t" not in reply.raw.decode()
    [error] = reply.refused(400, "VALIDATION")["errors"]
    assert error["path"] == at
    assert set(error["issue"].removeprefix("must be one of ").split(", ")) == set(values.split(", "))


@pytest.mark.parametrize(
    "message", [{}, {"body": 1, "tag": "a b"}, {"body": 1, "deliver_at": "soon"}, {"bdy": 1}]
)
def test_what_is_wrong_with_a_message_in_a_request_is_told_with_the_whole_path(
    group: Group, message: dict[str, Any]
) -> None:
    topic = group.topic
    alone = topic.api.post(f"{topic.path}/messages", message).refused(400)["errors"][0]
    problem = topic.api.post(f"{topic.path}/transactions", {"message": message}).refused(400)
    [result] = topic.batch([message])
    for error, start in ((problem, "message."), (result["error"], "messages[0].")):
        assert error["errors"] == [{**alone, "path": start + alone["path"]}]
        assert error["detail"] == f"{start}{alone['path']}: {alone['issue']}"


@pytest.mark.parametrize("text", ["", " ", "||", "a ||", "a b"])
def test_a_filter_of_no_tags_is_refused(group: Group, text: str) -> None:
    problem = group.api.put(group.path, {"filter": text}).refused(400, "VALIDATION")
    assert problem["errors"][0]["path"] == "filter"


def test_a_refusal_of_a_batch_item_does_not_repeat_the_value(api: Client) -> None:
    topic = api.topic()
    items = [
        {"body": 1, "tag": "s3cr3t value"},
        {"body": 1, "s3cr3t": 1},
        "s3cr3t",
        {"body": 1, "shard": "s3cr3t"},
    ]
    results = topic.batch(items)
    assert all(r["error"]["code"] == "VALIDATION" for r in results)
    assert "s3cr3t" not in json.dumps([results[0], *results[2:]])
    assert topic.accepted == 0
