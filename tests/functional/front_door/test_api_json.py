"""Strict JSON at the door: what is refused is refused with its reason, and stores nothing."""

from __future__ import annotations

import base64
import gzip
import json
import re
import time
import tracemalloc
from typing import Any

import pytest

from chalicelib.api import http
from chalicelib.api.calls import CALLS
from chalicelib.domain.errors import TooLarge
from chalicelib.domain.limits import MAX_BATCH_BYTES, MAX_REQUEST_BYTES
from tests.support.http import Client, Reply, Topic

SECRET = "s3cr3t-value"


def send(topic: Topic, raw: bytes, media: str | None = "application/json") -> Reply:
    headers = {"Content-Type": media} if media is not None else {}
    return topic.api.call("POST", f"{topic.path}/messages", raw=raw, headers=headers)


def refuses(topic: Topic, raw: bytes, code: str = "INVALID_JSON") -> Any:
    reply = send(topic, raw)
    problem = reply.refused(400, code)
    assert SECRET not in reply.raw.decode()
    assert topic.accepted == 0
    return problem


def nested(depth: int, opening: str = "[", closing: str = "]") -> bytes:
    """A request whose JSON is nested `depth` levels deep, the request's own object included."""
    inner = opening * (depth - 1) + "1" + closing * (depth - 1)
    return f'{{"body":{inner}}}'.encode()


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b'\xef\xbb\xbf{"body":1}', "byte order mark"),
        ('{"body":1}'.encode("utf-16"), "UTF-8"),
        (b'{"body":"\xff"}', "UTF-8"),
        (b'{"body":1,"body":1}', "twice"),
        (b'{"body":NaN}', "NaN"),
        (b'{"body":1e400}', "too large"),
        (b'{"body":' + b"9" * 5000 + b"}", "too long"),
        (b'{"body":1e-999999999999999999999999999999}', "exponent"),
        (b'{"delay_seconds":0e999999999999999999999999999999,"body":1}', "exponent"),
        (b'{"body":"\\ud800"}', "surrogate"),
        (b'{"body":1}x', "JSON"),
        (b"{", "JSON"),
        (b'{"body":"' + SECRET.encode(), "JSON"),
        (b"   ", "JSON"),
    ],
)  # fmt: skip
def test_what_is_no_strict_json_is_refused_with_its_reason(api: Client, raw: bytes, reason: str) -> None:
    assert reason in refuses(api.topic(), raw)["detail"]


@pytest.mark.parametrize(
    "raw",
    [
        nested(5_000_000),
        b"[" * 9_000_000,
        b'{"a":' * 1_500_000,
        b"{" * 40 + b'"' + b'\\"' * 4_000_000,
        b"[" * 40 + b'"' * 4_000_001,
        b'{"body":"' + b"\\" * 5_000_001,
        b'{"body":[' + b"1," * 3_000_000,
    ],
    ids=range(7),
)
def test_a_monstrous_body_is_refused_and_quickly(api: Client, raw: bytes) -> None:
    topic = api.topic()
    start = time.process_time()
    reply = send(topic, raw)
    assert time.process_time() - start < 3
    assert reply.status in (400, 413)
    reply.refused(reply.status)
    assert topic.accepted == 0


@pytest.mark.parametrize("raw", [b"[]", b"1", b'"x"', b"null", b"true", b'[{"body":1}]'])
def test_a_request_is_an_object(api: Client, raw: bytes) -> None:
    refuses(api.topic(), raw, "VALIDATION")


@pytest.mark.parametrize("raw", [b"", b"{}"])
def test_a_message_needs_a_body(api: Client, raw: bytes) -> None:
    assert refuses(api.topic(), raw, "VALIDATION")["errors"][0]["path"] == "body"


@pytest.mark.parametrize(
    "media",
    [
        "application/json",
        "APPLICATION/JSON",
        "application/json;charset=utf-8",
        "Application/Json ; Charset=UTF-8",
    ],
)
def test_case_and_charset_of_the_media_type_do_not_matter(api: Client, media: str) -> None:
    topic = api.topic()
    send(topic, b'{"body":1}', media).expect(201)


def test_a_missing_media_type_is_taken_for_json(api: Client) -> None:
    send(api.topic(), b'{"body":1}', None).expect(201)


def send_zipped(topic: Topic, path: str, raw: bytes, coding: str = "gzip") -> Reply:
    headers = {"Content-Type": "application/json", "Content-Encoding": coding}
    return topic.api.call("POST", path.format(topic=topic.path, name=topic.name), raw=raw, headers=headers)


WAYS_IN = ["{topic}/messages", "{topic}/messages/batch", "/v1/publish/{name}"]


@pytest.mark.parametrize("path", WAYS_IN)
def test_a_gzipped_body_is_unpacked_on_every_way_in(api: Client, path: str) -> None:
    topic = api.topic()
    group, body = topic.group(), {"a": "x" * 9_000}
    text = json.dumps({"messages": [{"body": body}]} if "batch" in path else {"body": body}).encode()
    reply = send_zipped(topic, path, gzip.compress(text), " GZIP, identity")
    assert reply.status in (200, 201)
    [message] = group.receive()
    assert message["body"] == (json.loads(text) if "publish" in path else body)


ZIPPED = gzip.compress(b'{"body":1}', mtime=0)


@pytest.mark.parametrize("path", WAYS_IN)
@pytest.mark.parametrize(
    "raw", [b'{"body":1}', ZIPPED[:-1], ZIPPED[:-8] + b"sum!" + ZIPPED[-4:], ZIPPED + b"x", ZIPPED * 2]
)
def test_a_body_that_is_not_one_gzip_stream_is_refused(api: Client, path: str, raw: bytes) -> None:
    topic = api.topic()
    problem = send_zipped(topic, path, raw).refused(400, "VALIDATION")
    assert problem["errors"][0]["path"] == "content-encoding"
    assert topic.accepted == 0


@pytest.mark.parametrize("coding", ["br", "deflate", "gzip, gzip", "gzip, br"])
def test_other_codings_are_a_415(api: Client, coding: str) -> None:
    topic = api.topic()
    send_zipped(topic, WAYS_IN[0], ZIPPED, coding).refused(415, "UNSUPPORTED_MEDIA_TYPE")
    assert topic.accepted == 0


@pytest.mark.parametrize("path", WAYS_IN)
def test_the_limits_hold_for_what_is_unpacked(api: Client, path: str) -> None:
    topic = api.topic()
    for size in (MAX_BATCH_BYTES + 1, MAX_REQUEST_BYTES + 1):
        send_zipped(topic, path, message_of(size, "batch" in path)).refused(413)
    assert topic.accepted == 0


def test_a_bomb_is_unpacked_no_further_than_a_request_may_go() -> None:
    bomb = message_of(20 * MAX_REQUEST_BYTES)
    tracemalloc.start()
    with pytest.raises(TooLarge):
        http._decoded({"content-encoding": "gzip"}, bomb)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 3 * MAX_REQUEST_BYTES


def message_of(size: int, in_batch: bool = False) -> bytes:
    """A request whose message has so many bytes, gzipped."""
    text = b'{"body":"%s"}' % (b"0" * size)
    return gzip.compress(b'{"messages":[%s]}' % text if in_batch else text, 1)


@pytest.mark.parametrize("coding", ["Identity", "", " ", ",", "identity, identity"])
def test_the_coding_identity_is_none(api: Client, coding: str) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": coding}
    api.call("POST", f"{api.topic().path}/messages", raw=b'{"body":1}', headers=headers).expect(201)


@pytest.mark.parametrize(
    "media",
    ["", "text/plain", "text/json", "application/jsonx", "application/json-patch+json", "*/*", "application", ";",
     "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/json, text/plain", "x" * 999],
)  # fmt: skip
def test_another_media_type_is_a_415(api: Client, media: str) -> None:
    topic = api.topic()
    send(topic, b'{"body":1}', media).refused(415, "UNSUPPORTED_MEDIA_TYPE")
    assert topic.accepted == 0


@pytest.mark.parametrize(
    "path", ["/v1/topics?limit=1", "/v1/health", "/v1/topics/{topic}", "/v1/topics/{topic}/messages"]
)
@pytest.mark.parametrize("raw", [b"{}", b"\xff\x00", b"[" * 100_000])
def test_a_body_on_a_get_is_ignored(api: Client, path: str, raw: bytes) -> None:
    topic = api.topic()
    headers = {"Content-Type": "text/plain"}
    api.call("GET", path.format(topic=topic.name), raw=raw, headers=headers).expect(200)


def test_a_request_over_10_megabytes_is_a_413(api: Client) -> None:
    topic = api.topic(max_body_bytes=4194304)
    send(topic, b'{"body":"' + b"x" * 10_485_760 + b'"}').refused(413)
    assert topic.accepted == 0


def test_a_number_that_no_parser_reads_is_refused_by_every_call_that_takes_json(api: Client) -> None:
    for entry in CALLS:
        if entry.body is not None:
            path = re.sub(r"\{\w+\}", "x", entry.path)
            raw = b'{"a":{"b":[1e-999999999999999999999999999999]}}'
            reply = api.call(entry.method, path, raw=raw, headers={"Content-Type": "application/json"})
            assert "exponent" in reply.refused(400, "INVALID_JSON")["detail"], path


@pytest.mark.parametrize(
    ("method", "path", "raw", "status"),
    [
        ("POST", "/messages", b'{"body":1,"delay_seconds":10.0,"retry":{"ladder":[1e1,20.0],"factor":2.0}}', 201),
        ("PUT", "", b'{"lease_seconds":10.0}', 200),
        ("POST", "/groups/g/receive", b'{"max":10.0,"wait_seconds":-0.0}', 200),
        ("POST", "/groups/g/nack", b'{"receipts":["x"],"delay_seconds":1.00E1}', 200),
        ("POST", "/groups/g/seek", b'{"to":10.0}', 200),
    ],
)  # fmt: skip
def test_a_whole_number_may_have_a_fraction_of_zero_and_an_exponent(
    api: Client, method: str, path: str, raw: bytes, status: int
) -> None:
    topic = api.topic()
    topic.group()
    api.call(method, topic.path + path, raw=raw, headers={"Content-Type": "application/json"}).expect(status)


def test_a_raw_body_with_such_a_number_is_bytes_that_can_be_replayed(api: Client) -> None:
    topic, raw = api.topic(), b'{"a": 1e-999999999999999999999999999999}'
    group = topic.group()
    topic.publish(raw, content_type="application/json").expect(201)
    day = {"from": "2030-01-01T00:00:00.000Z", "to": "2030-01-02T00:00:00.000Z"}
    replay = api.post(f"{topic.path}/replays", day).expect(202)["replay_id"]
    text = base64.b64encode(raw).decode()
    archived_message = {"id": "old", "shard": 0, "body_base64": text, "content_type": "application/json"}
    [result] = api.post(f"/v1/replays/{replay}/messages", {"messages": [archived_message]}).expect(200)[
        "results"
    ]
    assert result["status"] == "NEW"
    assert [message["body_base64"] for message in group.receive()] == [text, text]
    topic.publish(
        b'{"specversion":"1.0","id":"1","source":"s","type":"t","data":0e999999999999999999999999}',
        content_type="application/cloudevents+json",
    ).refused(400, "INVALID_JSON")
