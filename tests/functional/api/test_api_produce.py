"""Producing one message or a batch over HTTP."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from chalicelib.domain.times import DAY_SECONDS
from tests.support.background import Background
from tests.support.http import Client, Reply, ShiftingClock

BODIES = [
    None, True, 0, -1, 1.5, "", "text", [], {}, [1, [2, [3]]], {"a": {"b": None}}, "\u0000\u001f\u007f", "\u2028\u2029",
    "😀 e\u0301 \ufeff ﷽ \U0010ffff", {"ключ": "значение", "": 0, "\u0000": 1}, 2**63, -(2**64), 10**300, 1e308, 5e-324,
    "</script><!--", '"\\', {"__proto__": 1, "id": 2, "receipt": 3},
]  # fmt: skip


def test_a_message_is_accepted_and_told_where_it_stands(api: Client) -> None:
    topic = api.topic(shards=1)
    message = topic.produce("x")
    assert message.keys() == {"id", "topic", "status", "shard", "offset", "accepted_at", "duplicate"}
    assert (message["topic"], message["status"], message["shard"], message["offset"]) == (
        topic.name,
        "NEW",
        0,
        0,
    )
    assert message["duplicate"] is False
    assert len(message["id"]) <= 128
    assert topic.produce("y")["offset"] == 1


def test_everything_a_producer_gives_reaches_the_consumer(api: Client) -> None:
    topic = api.topic()
    group = topic.group()
    fields = {
        "keys": ["order-188", "ключ", "a b|c"],
        "tag": "paid",
        "ordering_key": "customer-7 ü",
        "headers": {"X-Trace": "1 ü 😀", "k": ""},
    }
    message = topic.produce({"total": 1.5}, **fields, expires_in_seconds=3600)
    [claimed_message] = group.receive()
    assert {name: claimed_message[name] for name in fields} == fields
    assert claimed_message["body"] == {"total": 1.5}
    assert (claimed_message["id"], claimed_message["shard"], claimed_message["offset"]) == (
        message["id"],
        message["shard"],
        message["offset"],
    )
    assert claimed_message["accepted_at"] == message["accepted_at"]
    assert claimed_message["attempt"] == 1
    assert claimed_message["receipt"]
    assert claimed_message["expires_at"] > claimed_message["accepted_at"]


def test_any_json_value_is_a_body_and_comes_back_equal(api: Client) -> None:
    topic = api.topic(shards=1)
    group = topic.group()
    assert all("error" not in result for result in topic.batch([{"body": body} for body in BODIES]))
    assert group.bodies(100) == BODIES
    single = api.topic(shards=1)
    for body in BODIES:
        single.produce(body)
    assert single.group().bodies(100) == BODIES


def test_bytes_with_a_media_type_come_back_as_they_were(api: Client) -> None:
    topic = api.topic(shards=1)
    group = topic.group()
    raws = [b"", b"plain", bytes(range(256)), b'{"a":1}', "ü".encode()]
    for raw in raws:
        fields = {"body_base64": base64.b64encode(raw).decode(), "content_type": "image/png"}
        api.post(f"{topic.path}/messages", fields).expect(201)
    messages = group.receive()
    assert [base64.b64decode(m["body_base64"]) for m in messages] == raws
    assert {m["content_type"] for m in messages} == {"image/png"}
    assert all("body" not in m for m in messages)


def test_the_shard_may_be_chosen_or_follows_from_the_ordering_key(api: Client) -> None:
    topic = api.topic(shards=7)
    assert [topic.produce(0, shard=shard)["shard"] for shard in range(7)] == list(range(7))
    keys = [f"key-{n}" for n in range(20)]
    first = [topic.produce(0, ordering_key=key)["shard"] for key in keys]
    assert [topic.produce(0, ordering_key=key)["shard"] for key in keys] == first
    assert len(set(first)) > 1


def test_a_shard_the_topic_does_not_have_is_refused(api: Client) -> None:
    topic = api.topic(shards=3)
    api.post(f"{topic.path}/messages", {"body": 1, "shard": 3}).refused(422, "NO_SUCH_SHARD")
    assert topic.accepted == 0


def test_a_topic_that_does_not_exist_is_a_404_that_says_how_to_make_it(api: Client) -> None:
    problem = api.post("/v1/topics/nobody-made-it/messages", {"body": 1}).refused(404, "TOPIC_NOT_FOUND")
    assert "PUT /v1/topics/nobody-made-it" in problem["detail"]


def test_a_delay_that_is_none_is_no_delay(api: Client) -> None:
    topic = api.topic()
    topic.produce(1, delay_seconds=0)
    topic.produce(2, deliver_at="2001-01-01T00:00:00Z")
    topic.produce(3, delay_seconds=None, deliver_at=None)
    assert topic.accepted == 3


def test_the_same_dedup_id_with_the_same_content_is_answered_with_the_first_id(api: Client) -> None:
    topic = api.topic()
    fields = {"body": {"a": 1}, "keys": ["k"], "dedup_id": "once ü"}
    first = api.post(f"{topic.path}/messages", fields).expect(201)
    again = api.post(f"{topic.path}/messages", fields).expect(200)
    assert again == {**first, "duplicate": True}
    assert topic.accepted == 1


@pytest.mark.parametrize("fields", [{}, {"delay_seconds": 60}])
def test_a_cancelled_message_frees_its_dedup_id(api: Client, fields: dict[str, Any]) -> None:
    topic = api.topic()
    path, payload, name = (
        f"{topic.path}/messages",
        {"body": 1, "dedup_id": "d"} | fields,
        {"Headrace-Request": "n"},
    )
    first = api.call("POST", path, payload, headers=name).expect(201)
    again = api.post(path, payload).expect(200)
    assert (again["id"], again["status"], again["duplicate"]) == (first["id"], first["status"], True)
    api.delete(f"{path}/{first['id']}").expect(204)
    resent = api.call("POST", path, payload, headers=name | {"Headrace-Resend": "9"}).expect(200)
    assert (resent["id"], resent["status"], resent["duplicate"]) == (first["id"], "CANCELLED", True)
    second = api.post(path, payload).expect(201)
    assert second["id"] != first["id"]
    assert [r["id"] for r in topic.batch([payload] * 2)] == [second["id"]] * 2
    api.delete(f"{path}/{second['id']}").expect(204)
    [other, twin] = topic.batch([payload | {"body": 2}] * 2)
    assert (other["duplicate"], twin["duplicate"], other["id"]) == (False, True, twin["id"])
    api.post(path, payload).refused(409, "DEDUP_MISMATCH")


@pytest.mark.parametrize("fields", [{}, {"delay_seconds": 1}])
def test_the_dedup_id_of_a_dead_letter_is_refused_until_it_is_redriven(
    api: Client, clock: ShiftingClock, background: Background, fields: dict[str, Any]
) -> None:
    topic = api.topic()
    group, other = topic.group(), topic.group("other")
    path, payload = f"{topic.path}/messages", {"body": 1, "dedup_id": "d"} | fields
    first = topic.produce(**payload)
    clock.advance(2)
    background.move()
    group.nack(*group.receive(), dead_letter=True)
    producer = api.with_token(api.new_token("produce")["token"])
    assert first["id"] in producer.post(path, payload).refused(409, "DEDUP_DEAD")["detail"]
    [result, _] = topic.batch([payload, {"body": 2}])
    assert result["error"]["code"] == "DEDUP_DEAD"
    api.post(path, payload | {"body": 2}).refused(409, "DEDUP_MISMATCH")
    api.post(f"{group.path}/dead-letters/redrive", {"ids": [first["id"]]}).expect(200)
    assert api.post(path, payload).expect(200)["id"] == first["id"]
    assert len(other.receive()) == 2


def test_a_dedup_id_until_done_is_free_once_every_group_has_ended_its_message(api: Client) -> None:
    topic = api.topic(dedup_window_seconds=60)
    groups = [topic.group(), topic.group("other")]
    path, payload = f"{topic.path}/messages", {"body": 1, "dedup_id": "d"}
    until_done = payload | {"dedup_until": "done"}
    first = topic.produce(**until_done)
    for group in groups:
        assert api.post(path, until_done).expect(200)["id"] == first["id"]
        group.ack(*group.receive())
    again = api.post(path, payload).expect(200)
    assert (again["id"], again["status"]) == (first["id"], "SUCCESS")
    options = {"Headrace-Dedup-Id": "d", "Headrace-Dedup-Until": "done", "Content-Type": "application/json"}
    assert topic.publish(b"1", **options).expect(201)["id"] != first["id"]
    api.post(path, {"body": 1, "dedup_until": "done"}).refused(400, "VALIDATION")


def test_a_dedup_id_until_done_outlives_the_window(api: Client, clock: ShiftingClock) -> None:
    topic = api.topic(dedup_window_seconds=60)
    topic.group()
    path, payload = f"{topic.path}/messages", {"body": 1, "dedup_id": "d", "dedup_until": "done"}
    api.post(path, payload).expect(201)
    clock.advance(3_600)
    api.post(path, payload).expect(200)
    clock.advance(7 * DAY_SECONDS)
    api.post(path, payload).expect(201)


def test_the_duplicate_of_a_delayed_message_says_where_it_is_now(
    api: Client, clock: ShiftingClock, background: Background
) -> None:
    topic = api.topic()
    fields = {"body": 1, "dedup_id": "d", "delay_seconds": 5}
    first = topic.produce(**fields)
    later = (datetime.fromisoformat(first["deliver_at"]) + timedelta(seconds=4)).isoformat()
    postponed = api.call("PATCH", f"{topic.path}/messages/{first['id']}", {"deliver_at": later}).expect(200)
    again = api.post(f"{topic.path}/messages", fields).expect(200)
    assert again == {**first, "deliver_at": postponed["deliver_at"], "duplicate": True}
    clock.advance(10)
    background.move()
    stored = api.get(f"{topic.path}/messages/{first['id']}").expect(200)
    for answer in (api.post(f"{topic.path}/messages", fields).expect(200), *topic.batch([fields])):
        assert answer["status"] == "NEW"
        assert {name: answer[name] for name in ("shard", "offset", "accepted_at", "deliver_at")} == {
            name: stored[name] for name in ("shard", "offset", "accepted_at", "deliver_at")
        }


@pytest.mark.parametrize(
    "change",
    [
        {"body": 2},
        {"keys": ["k"]},
        {"tag": "t"},
        {"ordering_key": "o"},
        {"shard": 1},
        {"headers": {"h": "v"}},
    ],
)
def test_the_same_dedup_id_with_other_content_is_a_conflict(api: Client, change: dict[str, Any]) -> None:
    topic = api.topic()
    first = {"body": 1, "dedup_id": "d"}
    api.post(f"{topic.path}/messages", first).expect(201)
    api.post(f"{topic.path}/messages", {**first, **change}).refused(409, "DEDUP_MISMATCH")
    assert topic.accepted == 1


def test_a_batch_answers_in_the_order_of_its_messages(api: Client) -> None:
    topic = api.topic(shards=5)
    messages = [{"body": n, "ordering_key": f"k{n % 13}"} if n % 3 else {"body": n} for n in range(200)]
    results = topic.batch(messages)
    assert [r["index"] for r in results] == list(range(200))
    numbers = {r["id"]: n for n, r in enumerate(results)}
    listed = [m for page in api.pages(f"{topic.path}/messages", 200) for m in page]
    assert {m["id"]: m["body"] for m in listed} == numbers


def test_bad_messages_of_a_batch_are_refused_one_by_one(api: Client) -> None:
    topic = api.topic(shards=2)
    topic.produce("known", dedup_id="known")
    results = topic.batch(
        [
            {"body": 0},
            {"bodi": 1},
            {"body": 2, "shard": 2},
            7,
            {"body": 4, "tag": "a b"},
            {"body": "known", "dedup_id": "known"},
            {"body": "other", "dedup_id": "known"},
            {"body": 7, "dedup_id": "twin"},
            {"body": 7, "dedup_id": "twin"},
            {"body": 8, "dedup_id": "twin"},
            {"body": "x" * 262144},
            {"body": 11, "delay_seconds": 5},
            None,
            {"body": 13, "keys": ["ok", 5]},
            {"body": 14},
        ]
    )
    outcomes = [
        r["error"]["code"] if "error" in r else ("twice" if r["duplicate"] else "new") for r in results
    ]
    assert outcomes == [
        "new", "VALIDATION", "NO_SUCH_SHARD", "VALIDATION", "VALIDATION", "twice", "DEDUP_MISMATCH", "new", "twice",
        "DEDUP_MISMATCH", "BODY_TOO_LARGE", "new", "VALIDATION", "VALIDATION", "new",
    ]  # fmt: skip
    assert results[7]["id"] == results[8]["id"]
    assert results[1]["error"]["errors"] == [{"path": "messages[1].bodi", "issue": "unknown field"}]
    assert results[3]["error"]["errors"][0]["path"] == "messages[3]"
    assert results[13]["error"]["errors"][0]["path"] == "messages[13].keys[1]"
    assert topic.accepted == 4
    assert sorted(map(str, topic.group().bodies(50))) == ["0", "14", "7", "known"]


def test_a_batch_of_a_thousand_with_dedup_ids_is_stored_once(api: Client) -> None:
    topic = api.topic(shards=2)
    messages = [{"body": n, "dedup_id": f"d{n % 700}" if n % 2 else None} for n in range(1000)]
    first = topic.batch(messages)
    again = topic.batch(messages)
    for n, (one, other) in enumerate(zip(first, again, strict=True)):
        if n % 2 and "error" not in one:
            assert (other["id"], other["duplicate"]) == (one["id"], True)
    clashes = [n for n, r in enumerate(first) if "error" in r]
    assert clashes == list(range(701, 1000, 2))
    assert topic.accepted == 500 + 350 + 500


def test_a_named_request_that_is_sent_again_is_answered_with_what_it_stored(api: Client) -> None:
    topic = api.topic()
    headers, path = {"Headrace-Request": "shop-7"}, f"{topic.path}/messages"
    first = api.call("POST", path, {"body": 1}, headers=headers).expect(201)
    again = api.call("POST", path, {"body": 1}, headers={**headers, "Headrace-Resend": "1"}).expect(200)
    assert (again["id"], again["duplicate"]) == (first["id"], True)
    batch = {"messages": [{"body": 1}, {"body": 2}]}
    headers = {"Headrace-Request": "shop-8"}
    ids = [r["id"] for r in api.call("POST", f"{path}/batch", batch, headers=headers).expect(200)["results"]]
    results = api.call("POST", f"{path}/batch", batch, headers={**headers, "Headrace-Resend": "0"}).expect(
        200
    )
    assert [(r["id"], r["duplicate"]) for r in results["results"]] == [(id, True) for id in ids]
    raw = {"Headrace-Request": "shop-9", "Headrace-Resend": "5"}
    message = api.call("POST", f"/v1/publish/{topic.name}", raw=b"x", headers=raw).expect(201)
    assert (
        api.call("POST", f"/v1/publish/{topic.name}", raw=b"x", headers=raw).expect(200)["id"]
        == message["id"]
    )
    assert topic.accepted == 4


def test_a_name_that_is_none_is_refused(api: Client) -> None:
    path = f"{api.topic().path}/messages"
    bad = [
        {"Headrace-Request": "a b"},
        {"Headrace-Request": "x" * 129},
        {"Headrace-Resend": "1"},
        {"Headrace-Request": "a-1", "Headrace-Resend": "soon"},
        {"Headrace-Request": "a-1", "Headrace-Resend": "86401"},
    ]
    for headers in bad:
        api.call("POST", path, {"body": 1}, headers=headers).refused(400, "VALIDATION")


CODE = "RATE_LIMITED"


def codes(results: list[Any]) -> list[str]:
    return [result["error"]["code"] if "error" in result else "ok" for result in results]


def refused_after(post: Callable[[], Reply]) -> int:
    """How many are accepted before a refusal: time goes on, and each second brings another permit."""
    for count in range(20):
        reply = post()
        if reply.status != 201:
            assert reply.refused(429, CODE)["retryable"]
            assert {name.lower(): value for name, value in reply.headers.items()}["retry-after"] == "1"
            return count
    raise AssertionError("never refused")


def test_a_batch_is_served_in_part_and_each_of_the_rest_is_told_so(api: Client) -> None:
    topic = api.topic(rate_limit=10)
    results = topic.batch([{"body": n, "keys": ["k"]} for n in range(8)])
    assert codes(results) == ["ok"] * 5 + [CODE] * 3
    assert [result["index"] for result in results] == list(range(8))
    assert results[7]["error"]["retryable"]
    assert topic.accepted == 5
    assert len(api.get(f"{topic.path}/messages?key=k").expect(200)["items"]) == 5


@pytest.mark.parametrize("way", ["messages", "publish", "delayed"])
def test_every_way_in_is_limited_and_opens_again(api: Client, clock: ShiftingClock, way: str) -> None:
    topic = api.topic(rate_limit=1)
    fields = {"delay_seconds": 1} if way == "delayed" else {}

    def post() -> Reply:
        if way == "publish":
            return topic.publish(b"raw", content_type="text/plain")
        return api.post(f"{topic.path}/messages", {"body": 1, **fields})

    count = refused_after(post)
    clock.advance(1)
    assert post().status == 201
    assert topic.accepted == (0 if fields else count + 1)
