"""CloudEvents: what a request holds in each content mode, read by the `cloudevents` package."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import hypothesis.strategies as st
import pytest
from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from hypothesis import given

from chalicelib.delivery.events import post
from chalicelib.delivery.function_batch import event, failed_ids
from chalicelib.domain.call_result import PushBatch
from chalicelib.domain.message import Draft
from tests.support.factories import draft
from tests.unit.delivery.push_batches import push_batch, raw

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), min_size=1, max_size=20)


def read(of: PushBatch) -> BaseCloudEvent:
    """The event as a receiver sees it."""
    request = post(of)
    return from_http_event(HTTPMessage({k.lower(): v for k, v in request.headers.items()}, request.body))


@pytest.mark.parametrize("payload", ["binary", "structured"])
def test_a_message_is_an_event_of_its_topic(payload: str) -> None:
    event = read(push_batch(draft({"n": 1}, keys=("order-1", "x")), payload=payload))
    assert (event.get_id(), event.get_source(), event.get_type()) == (
        "0123456789ab-3-7",
        "/topics/orders",
        "headrace.message",
    )
    assert (event.get_subject(), event.get_specversion()) == ("order-1", "1.0")
    assert event.get_time() == datetime(2100, 1, 1, microsecond=5000, tzinfo=UTC)
    assert event.get_datacontenttype() == "application/json"
    assert event.get_data() == {"n": 1}


def test_the_place_of_a_message_is_in_headers_of_ours() -> None:
    headers = post(push_batch(draft(1, tag="paid", tenant="Müller"))).headers
    assert {name: value for name, value in headers.items() if name.startswith("Headrace-")} == {
        "Headrace-Topic": "orders",
        "Headrace-Group": "billing",
        "Headrace-Shard": "3",
        "Headrace-Offset": "7",
        "Headrace-Attempt": "2",
        "Headrace-Tag": "paid",
        "Headrace-Tenant": "M%C3%BCller",
    }
    assert not {"Headrace-Tag", "Headrace-Tenant"} & post(push_batch(draft(1))).headers.keys()


@pytest.mark.parametrize("payload", ["binary", "structured"])
def test_a_producers_own_event_keeps_its_type_schema_and_extensions(payload: str) -> None:
    own = {
        "ce-id": "theirs", "ce-source": "/theirs", "ce-specversion": "1.0", "ce-time": "2001-01-01T00:00:00Z",
        "ce-type": "order.paid", "ce-dataschema": "https://example.com/s", "ce-subject": "s", "CE-Color": "blue",
        "ce-datacontenttype": "text/lies", "ce-empty": "", "ce-not-a-name": "x", "ce-data": "x",
    }  # fmt: skip
    attributes = dict(
        read(push_batch(raw(b"hi", "text/plain", headers=own), payload=payload)).get_attributes()
    )
    attributes.pop("time")
    assert attributes == {
        "id": "0123456789ab-3-7", "source": "/topics/orders", "specversion": "1.0", "type": "order.paid",
        "dataschema": "https://example.com/s", "subject": "s", "color": "blue", "datacontenttype": "text/plain",
    }  # fmt: skip


@given(TEXT, st.sampled_from(("binary", "structured")))
def test_any_text_survives_as_an_attribute(text: str, payload: str) -> None:
    message = draft(1, keys=(text,), headers={"ce-color": text})
    event = read(push_batch(message, payload=payload))
    assert (event.get_subject(), event.get_extension("color")) == (text, text)
    assert all(v.isascii() for k, v in post(push_batch(message)).headers.items() if k.startswith("ce-"))


def test_headers_of_the_producer_are_forwarded_but_not_in_our_place() -> None:
    own = {
        "X-Trace": "t1", "content-encoding": "lies", "X-Forwarded-For": "lies", "svix-id": "lies",
        "Content-Type": "text/lies", "Headrace-Topic": "lies",
        "WEBHOOK-ID": "lies", "ce-id": "lies", "Authorization": "Bearer x", "Cookie": "a=b",
        "set-cookie": "a=b", "X-Api-Key": "a=b",
    }  # fmt: skip
    headers = post(push_batch(draft(1, headers=own))).headers
    assert headers["X-Trace"] == "t1"
    assert len({name.lower() for name in headers}) == len(headers)
    assert not [v for v in headers.values() if "lies" in v or "Bearer" in v or "a=b" in v]


@given(TEXT)
def test_forwarded_headers_are_printable_ascii_and_can_be_read_back(text: str) -> None:
    own = {"X-Word": text, "X-Plain": f"{text!a} 100%"}
    headers = post(push_batch(draft(1, headers=own, tag=text))).headers
    assert headers["X-Plain"] == own["X-Plain"]
    for name in ("X-Word", "Headrace-Tag"):
        assert headers[name].isascii()
        assert headers[name].isprintable()
        assert unquote(headers[name]) == unquote(text)


@given(
    st.binary(max_size=200), st.sampled_from(("application/octet-stream", "application/json", "text/plain"))
)
def test_a_body_arrives_byte_for_byte(body: bytes, media: str) -> None:
    assert post(push_batch(raw(body, media))).body == body
    event = json.loads(post(push_batch(raw(body, media), payload="structured")).body)
    if "data_base64" in event:
        assert read(push_batch(raw(body, media), payload="structured")).get_data() == body
    else:
        assert media == "application/json"
        assert event["data"] == json.loads(body)


@pytest.mark.parametrize(
    ("body", "media", "field"),
    [
        (b'{"a":1}', "application/json; charset=utf-8", "data"),
        (b"[1]", "application/vnd.order+json", "data"),
        (b"{", "application/json", "data_base64"),
        (b"NaN", "application/json", "data_base64"),
        (b"[" * 100_000, "application/json", "data_base64"),
        (b'"\xff"', "application/json", "data_base64"),
        (b"", "application/json", "data_base64"),
        (b'{"a":1}', "text/plain", "data_base64"),
    ],
)
def test_data_is_json_only_where_it_says_so_and_is(body: bytes, media: str, field: str) -> None:
    event = json.loads(post(push_batch(raw(body, media), payload="structured")).body)
    assert {"data", "data_base64"} & event.keys() == {field}


def test_a_number_keeps_its_digits_in_a_structured_event() -> None:
    exact = b'{"n":1.00000000000000000000000000001}'
    assert exact in post(push_batch(Draft(exact), payload="structured")).body


@pytest.mark.parametrize("payload", ["batch", "structured"])
def test_a_batch_tells_each_messages_place(payload: str) -> None:
    request = post(push_batch(draft(1, tag="paid"), raw(b"\x00"), payload=payload))
    events: list[dict[str, Any]] = json.loads(request.body)
    assert request.headers["Content-Type"] == "application/cloudevents-batch+json"
    assert [(e["id"], e["headraceoffset"], e.get("headracetag")) for e in events] == [
        ("0123456789ab-3-7", "7", "paid"),
        ("0123456789ab-3-8", "8", None),
    ]
    assert (events[0]["data"], events[1]["data_base64"]) == (1, "AA==")
    for one in events:
        single = {"content-type": "application/cloudevents+json"}
        assert from_http_event(HTTPMessage(single, json.dumps(one).encode())).get_id() == one["id"]


def test_a_batch_has_an_id_of_its_own_that_stays_the_same() -> None:
    one, two = (push_batch(draft(1), draft(2), payload="batch") for _ in range(2))
    assert post(one).id == post(two).id
    assert post(one).id != post(push_batch(draft(1), payload="batch")).id
    assert post(push_batch(draft(1), payload="structured")).id == "0123456789ab-3-7"


# Functions


def test_a_function_gets_whole_messages_and_any_json_body_to_the_digit() -> None:
    exact = Draft(
        b"1.000000000000000000001", keys=("k",), tag="t", tenant="u", ordering_key="o", headers={"h": "v"}
    )
    text = event(push_batch(exact, raw(b"\x00\xff", "image/png")))
    assert b'"body":1.000000000000000000001,' in text
    one, two = json.loads(text)["messages"]
    assert one == {
        "id": "0123456789ab-3-7", "body": 1.0, "content_type": "application/json", "keys": ["k"], "tag": "t",
        "tenant": "u", "ordering_key": "o", "headers": {"h": "v"}, "accepted_at": "2100-01-01T00:00:00.005Z",
        "attempt": 2, "shard": 3, "offset": 7,
    }  # fmt: skip
    assert (two["body_base64"], two["content_type"], "body" in two) == ("AP8=", "image/png", False)
    assert {name: json.loads(text)[name] for name in ("topic", "group")} == {
        "topic": "orders",
        "group": "billing",
    }


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(("0123456789ab-3-7",)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("batchItemFailures", "itemIdentifier", "x")), inner, max_size=3)
    ),
    max_leaves=8,
)


def ids(push_batch: PushBatch) -> list[str]:
    return [attempt.message.id for attempt in push_batch.attempts]


@given(st.binary(max_size=60) | JSON_VALUES.map(lambda value: json.dumps(value).encode()))
def test_whatever_a_function_answers_only_messages_that_were_sent_can_have_failed(answer: bytes) -> None:
    failures = failed_ids(ids(push_batch(draft(1), draft(2))), answer)
    assert failures is None or failures <= {"0123456789ab-3-7", "0123456789ab-3-8"}


@pytest.mark.parametrize("answer", [b"[" * 100_000, b'{"x":' * 100_000, b'"\xff"', b"{", b" "])
def test_an_answer_nobody_can_read_tells_nothing(answer: bytes) -> None:
    assert failed_ids(ids(push_batch(draft(1))), answer) is None
