"""Publishing raw bodies and CloudEvents over HTTP."""

from __future__ import annotations

import base64
import json
import re
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.http import Client, Topic

STRUCTURED = "application/cloudevents+json"
EVENT = {"specversion": "1.0", "id": "e-1", "source": "/shop", "type": "order.paid"}


def structured(topic: Topic, event: Any, media: str = STRUCTURED) -> Any:
    return topic.publish(json.dumps(event).encode(), content_type=media)


def received(topic: Topic) -> Any:
    """The message, with its body's bytes: of JSON, as they stand in the answer."""
    answer = topic.api.post(f"{topic.group().path}/receive", {})
    [message] = answer.expect(200)["messages"]
    if "body_base64" in message:
        return {**message, "raw": base64.b64decode(message["body_base64"])}
    text = re.search(rb'"body":(.*),"content_type"', answer.raw, re.DOTALL)
    assert text
    return {**message, "raw": text[1]}


@pytest.mark.parametrize(
    ("raw", "media"),
    [
        (b"", "text/plain"),
        (b"\x00\xff\xfe binary", "application/octet-stream"),
        (b'{"not": strict JSON', "application/json"),
        (b'{"a": 1,  "a": 2}', "application/json; charset=utf-8"),
        ("ünïcode".encode("utf-16"), "text/plain; charset=utf-16"),
        (b"<x/>", "Application/XML"),
    ],
)
def test_a_raw_body_arrives_byte_for_byte_with_its_type(api: Client, raw: bytes, media: str) -> None:
    topic = api.topic()
    topic.publish(raw, content_type=media).expect(201)
    message = received(topic)
    assert (message["raw"], message["content_type"]) == (raw, media)


@pytest.mark.parametrize("raw", [b'{"a": 1.10}', b" [1] \n", b'"text"', b"null"])
@pytest.mark.parametrize("media", ["application/json", "Application/Order+JSON; charset=utf-8"])
def test_a_raw_body_that_is_json_is_received_as_json(api: Client, raw: bytes, media: str) -> None:
    topic = api.topic()
    topic.publish(raw, content_type=media).expect(201)
    message = received(topic)
    assert (message["raw"], message["content_type"]) == (raw, media)
    assert message["body"] == json.loads(raw)


def test_options_are_headers(api: Client) -> None:
    topic = api.topic()
    result = topic.publish(
        b"x",
        Headrace_Key="k1",
        HEADRACE_TAG="paid",
        headrace_ordering_key="o",
        Headrace_Dedup_Id="d",
        Headrace_Forward_X_Trace="t 1",
        X_Other="not forwarded",
    ).expect(201)
    message = received(topic)
    assert message["id"] == result["id"]
    assert (message["keys"], message["tag"], message["ordering_key"]) == (["k1"], "paid", "o")
    assert message["headers"] == {"x-trace": "t 1"}


@pytest.mark.parametrize(
    "headers",
    [
        {"Headrace_Delay_Seconds": "soon"},
        {"Headrace_Delay_Seconds": "-1"},
        {"Headrace_Delay_Seconds": "1.5"},
        {"Headrace_Delay_Seconds": ""},
        {"Headrace_Tag": "a b"},
        {"Headrace_Tag": ""},
        {"Headrace_Tag": "t" * 129},
        {"Headrace_Key": ""},
        {"Headrace_Key": "k" * 257},
        {"Headrace_Ordering_Key": "k" * 257},
        {"Headrace_Dedup_Id": "d" * 129},
        {"Headrace_Dedup_Id": ""},
        {"Headrace_Forward_X": "v" * 1025},
        {"Headrace_Delay_Secnds": "30"},
        {"Headrace_Topic": "another"},
        {"Content_Type": "t" * 257},
    ],
)
def test_a_bad_option_is_refused_and_nothing_is_stored(api: Client, headers: dict[str, str]) -> None:
    topic = api.topic()
    topic.publish(b"x", **headers).refused(400, "VALIDATION")
    assert topic.accepted == 0


def test_a_binary_event_keeps_its_attributes_as_headers(api: Client) -> None:
    topic = api.topic()
    headers = {f"ce_{name}": value for name, value in EVENT.items()}
    topic.publish(b'{"a":1}', content_type="application/json", ce_subject="s", **headers).expect(201)
    message = received(topic)
    assert message["raw"] == b'{"a":1}'
    assert message["headers"] == {**{f"ce-{name}": value for name, value in EVENT.items()}, "ce-subject": "s"}


def test_a_structured_event_is_taken_apart(api: Client) -> None:
    topic = api.topic()
    event = {
        **EVENT,
        "datacontenttype": "application/vnd.x+json",
        "count": 3,
        "flag": True,
        "data": {"a": "ü"},
    }
    structured(topic, event, "Application/CloudEvents+JSON; charset=utf-8").expect(201)
    message = received(topic)
    assert json.loads(message["raw"]) == {"a": "ü"}
    assert message["content_type"] == "application/vnd.x+json"
    assert message["headers"]["ce-count"] == "3"
    assert message["headers"]["ce-flag"] == "true"
    assert message["headers"]["ce-type"] == "order.paid"


@pytest.mark.parametrize(
    ("fields", "raw"),
    [
        ({"data": "text", "datacontenttype": "text/plain"}, b"text"),
        ({"data": "text"}, b'"text"'),
        ({"data": None}, b"null"),
        ({"data_base64": "AP8="}, b"\x00\xff"),
        ({}, b""),
    ],
)
def test_the_data_of_a_structured_event_is_the_body(api: Client, fields: dict[str, Any], raw: bytes) -> None:
    topic = api.topic()
    structured(topic, {**EVENT, **fields}).expect(201)
    assert received(topic)["raw"] == raw


def test_the_numbers_of_a_structured_event_keep_their_digits(api: Client) -> None:
    topic = api.topic()
    raw = json.dumps(EVENT)[:-1].encode() + b', "data": {"price": 1.10, "exact": 0.12345678901234567890}}'
    topic.publish(raw, content_type=STRUCTURED).expect(201)
    assert received(topic)["raw"] == b'{"price":1.10,"exact":0.12345678901234567890}'


def test_an_attribute_that_is_null_is_as_good_as_not_there(api: Client) -> None:
    topic = api.topic()
    first = structured(topic, {**EVENT, "subject": None, "datacontenttype": None, "data": 1}).expect(201)
    assert structured(topic, {**EVENT, "data": 1}).expect(200)["id"] == first["id"]
    assert received(topic)["headers"].keys() == {f"ce-{name}" for name in EVENT}


@pytest.mark.parametrize("media", ["", "+json", "+JSON; charset=utf-8", "+xml"])
def test_a_batch_of_events_is_refused_and_not_taken_for_one_message(api: Client, media: str) -> None:
    topic = api.topic()
    reply = structured(topic, [EVENT, {**EVENT, "id": "e-2"}], f"application/cloudevents-batch{media}")
    assert "messages/batch" in reply.refused(415, "UNSUPPORTED_MEDIA_TYPE")["detail"]
    assert topic.accepted == 0


def test_an_event_is_stored_once_whichever_way_it_comes(api: Client) -> None:
    topic = api.topic()
    event = {**EVENT, "datacontenttype": "application/json", "data": {"a": 1}}
    first = structured(topic, event).expect(201)
    assert structured(topic, event).expect(200)["id"] == first["id"]
    binary = {f"ce_{name}": value for name, value in EVENT.items()}
    assert (
        topic.publish(b'{"a":1}', content_type="application/json", **binary).expect(200)["id"] == first["id"]
    )
    structured(topic, {**event, "source": "/other"}).expect(201)
    structured(topic, {**event, "data": 2}).refused(409, "DEDUP_MISMATCH")
    assert topic.accepted == 2


def test_different_events_never_share_a_dedup_id(api: Client) -> None:
    topic = api.topic()
    structured(topic, {**EVENT, "source": "a|b", "id": "c"}).expect(201)
    structured(topic, {**EVENT, "source": "a", "id": "b|c"}).expect(201)
    structured(topic, {**EVENT, "source": "s" * 500, "id": "1"}).expect(201)
    structured(topic, {**EVENT, "source": "s" * 500, "id": "2"}).expect(201)
    assert topic.accepted == 4


@pytest.mark.parametrize(
    "change",
    [
        {"specversion": "0.3"},
        {"specversion": None},
        {"specversion": 1},
        {"id": ""},
        {"id": None},
        {"source": ""},
        {"type": ""},
        {"Bad-Name": "x"},
        {"x": 1.5},
        {"x": {}},
        {"x": "line\r\nbreak"},
        {"datacontenttype": "text/plain\r\nX-Evil: 1"},
        {"datacontenttype": "tëxt"},
        {"datacontenttype": ""},
        {"data_base64": "not base64!"},
        {"data_base64": 5},
        {"data": 1, "data_base64": "AA=="},
    ],
)
def test_an_event_that_is_none_is_refused_and_nothing_is_stored(api: Client, change: dict[str, Any]) -> None:
    topic = api.topic()
    structured(topic, {**EVENT, **change}).refused(400)
    assert topic.accepted == 0


@pytest.mark.parametrize("raw", [b"", b"[]", b"1", b"{", b'{"id":1,"id":2}', b"\xff", b"[" * 50_000])
def test_a_structured_event_is_read_as_strictly_as_any_json(api: Client, raw: bytes) -> None:
    topic = api.topic()
    topic.publish(raw, content_type=STRUCTURED).refused(400)
    assert topic.accepted == 0


@pytest.mark.parametrize("name", ["id", "source", "type"])
def test_attributes_without_a_version_are_no_event_and_are_not_dropped_silently(
    api: Client, name: str
) -> None:
    topic = api.topic()
    refusal = topic.publish(b"1", **{f"ce_{name}": "x"}).refused(400, "VALIDATION")
    assert refusal["errors"][0]["path"] == "ce-specversion"
    assert topic.accepted == 0


@pytest.mark.parametrize("text", ["café", "naïve 😀", "plain"])
@pytest.mark.parametrize("reads_bytes_as", ["latin-1", "utf-8"])
def test_headers_are_utf_8_whoever_reads_them_first(api: Client, text: str, reads_bytes_as: str) -> None:
    topic = api.topic()
    header_text = text.encode().decode(reads_bytes_as)
    id = topic.publish(
        b"x", headrace_key=header_text, headrace_ordering_key=header_text, headrace_forward_x=header_text
    ).expect(201)["id"]
    [item] = api.get(f"{topic.path}/messages?key={quote(text)}").expect(200)["items"]
    assert (item["id"], item["keys"], item["ordering_key"]) == (id, [text], text)
    assert item["headers"] == {"x": text}


def test_a_cloud_events_headers_can_be_changed_as_they_were_shown_but_for_new_ones(api: Client) -> None:
    topic = api.topic()
    message = topic.publish(b"1", **{f"ce_{name}": value for name, value in EVENT.items()}).expect(201)
    path = f"{topic.path}/messages/{message['id']}"
    old_headers = api.get(path).expect(200)["headers"]
    new_headers = {**old_headers, "ce-type": "order.mended", "shop": "7"}
    assert api.call("PATCH", path, {"headers": new_headers}).expect(200)["headers"] == new_headers
    api.call("PATCH", path, {"headers": {**old_headers, "ce-another": "1"}}).refused(422, "HEADER_RESERVED")
