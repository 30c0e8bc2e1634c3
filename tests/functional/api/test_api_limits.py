"""The largest and the smallest of everything over HTTP, and answers that large messages fit."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import app
from chalicelib.domain import limits
from tests.support import settings
from tests.support.http import Client, Group, Reply, Topic


def text(length: int) -> str:
    return "ü" * length


def message(**fields: Callable[[int], Any]) -> Callable[[Topic, int], Reply]:
    """A produce whose one field depends on the number."""

    def send(topic: Topic, n: int) -> Reply:
        values = {name: of(n) for name, of in fields.items()}
        return topic.api.post(
            f"{topic.path}/messages", {**({} if "body_base64" in values else {"body": 1}), **values}
        )

    return send


def setting(name: str, of: Callable[[int], Any] = lambda n: n) -> Callable[[Topic, int], Reply]:
    return lambda topic, n: topic.api.put(topic.path, {name: of(n)})


def group_setting(name: str, of: Callable[[int], Any] = lambda n: n) -> Callable[[Topic, int], Reply]:
    return lambda topic, n: topic.api.put(f"{topic.path}/groups/g", {name: of(n)})


def post(path: str, of: Callable[[int], Any]) -> Callable[[Topic, int], Reply]:
    return lambda topic, n: topic.api.post(topic.path + path, of(n))


def new_token(of: Callable[[int], Any]) -> Callable[[Topic, int], Reply]:
    return lambda topic, n: topic.api.post("/v1/tokens", {"name": "t", "scopes": ["produce"], **of(n)})


def batch_bytes(topic: Topic, n: int) -> Reply:
    frame = len(b'{"messages":[{"body":""},{"body":1}]}')
    raw = b'{"messages":[{"body":"' + b"x" * (n - frame) + b'"},{"body":1}]}'
    topic.api.put(topic.path, {"max_body_bytes": limits.MAX_BODY_BYTES})
    headers = {"Content-Type": "application/json"}
    return topic.api.call("POST", f"{topic.path}/messages/batch", raw=raw, headers=headers)


def named(path: str) -> Callable[[Topic, int], Reply]:
    return lambda topic, n: topic.api.put(path.format(topic=topic.path, name="n" * n))


def headers_bytes(n: int) -> dict[str, str]:
    """As many headers as there may be, which have n bytes together."""
    size, more = divmod(n, limits.MAX_HEADERS)
    return {f"h{i:02}": "v" * (size - 3 + (i < more)) for i in range(limits.MAX_HEADERS)}


def url(topic: Topic, n: int) -> Reply:
    """Registers a consumer at a URL of n characters."""
    start = "http://127.0.0.1:1/"
    return topic.api.put(f"{topic.path}/groups/g/consumers/c", {"url": start + "x" * (n - len(start))})


LEASE, WAIT = limits.MAX_LEASE_SECONDS, limits.MAX_RETRY_SECONDS
MOST: dict[str, tuple[int, Callable[[Topic, int], Reply]]] = {
    "body": (262144, message(body=lambda n: "x" * (n - 2))),
    "body in base64": (262144, message(body_base64=lambda n: base64.b64encode(b"\xff" * n).decode())),
    "published body": (262144, lambda topic, n: topic.publish(b"x" * n)),
    "keys": (limits.MAX_KEYS, message(keys=lambda n: ["k"] * n)),
    "key": (limits.MAX_KEY_CHARS, message(keys=lambda n: [text(n)])),
    "tag": (limits.MAX_TAG_CHARS, message(tag=text)),
    "ordering key": (limits.MAX_KEY_CHARS, message(ordering_key=text)),
    "dedup id": (limits.MAX_DEDUP_ID_CHARS, message(dedup_id=text)),
    "headers": (limits.MAX_HEADERS, message(headers=lambda n: {f"h{i}": "" for i in range(n)})),
    "header name": (limits.MAX_HEADER_NAME_CHARS, message(headers=lambda n: {"h" * n: ""})),
    "header value": (limits.MAX_HEADER_VALUE_CHARS, message(headers=lambda n: {"h": text(n)})),
    "headers together": (limits.MAX_HEADERS_BYTES, message(headers=headers_bytes)),
    "content type": (
        limits.MAX_CONTENT_TYPE_CHARS, message(body_base64=lambda n: "", content_type=lambda n: "t" * n)
    ),
    "expiry": (limits.MAX_DELAY_SECONDS, message(expires_in_seconds=lambda n: n)),
    "a message's attempts": (limits.MAX_ATTEMPTS, message(retry=lambda n: {"max_attempts": n})),
    "batch": (limits.MAX_BATCH, post("/messages/batch", lambda n: {"messages": [{"body": 1}] * n})),
    "batch bytes": (limits.MAX_BATCH_BYTES, batch_bytes),
    "seek": (limits.MAX_OFFSET, post("/groups/g/seek", lambda n: {"to": n})),
    "attempts": (limits.MAX_ATTEMPTS, setting("retry", lambda n: {"max_attempts": n})),
    "ladder": (limits.MAX_LADDER_STEPS, setting("retry", lambda n: {"ladder": [1] * n})),
    "ladder step": (WAIT, setting("retry", lambda n: {"ladder": [n]})),
    "base": (WAIT, setting("retry", lambda n: {"ladder": "exponential", "base_seconds": n})),
    "cap": (WAIT, setting("retry", lambda n: {"ladder": "exponential", "cap_seconds": n})),
    "filter": (limits.MAX_FILTER_TAGS, group_setting("filter", lambda n: " || ".join(f"t{i}" for i in range(n)))),
    "topic name": (128, named("/v1/topics/{name}")),
    "group name": (128, named("{topic}/groups/{name}")),
    "consumer name": (128, named("{topic}/groups/g/consumers/{name}")),
    "receive": (limits.MAX_RECEIVE, post("/groups/g/receive", lambda n: {"max": n})),
    "wait": (limits.MAX_RECEIVE_WAIT_SECONDS, post("/groups/g/receive", lambda n: {"wait_seconds": n})),
    "receive's lease": (LEASE, post("/groups/g/receive", lambda n: {"lease_seconds": n})),
    "receipts to ack": (limits.MAX_RECEIPTS, post("/groups/g/ack", lambda n: {"receipts": ["x"] * n})),
    "receipts to nack": (limits.MAX_RECEIPTS, post("/groups/g/nack", lambda n: {"receipts": ["x"] * n})),
    "receipts to extend": (
        limits.MAX_RECEIPTS, post("/groups/g/extend", lambda n: {"receipts": ["x"] * n, "lease_seconds": 1})
    ),
    "extension": (LEASE, post("/groups/g/extend", lambda n: {"receipts": ["x"], "lease_seconds": n})),
    "nack's delay": (WAIT, post("/groups/g/nack", lambda n: {"receipts": ["x"], "delay_seconds": n})),
    "reason": (limits.MAX_REASON_CHARS, post("/groups/g/nack", lambda n: {"receipts": ["x"], "reason": text(n)})),
    "ids to redrive": (limits.MAX_BATCH, post("/groups/g/dead-letters/redrive", lambda n: {"ids": ["x"] * n})),
    "redrive": (limits.MAX_REDRIVE, post("/groups/g/dead-letters/redrive", lambda n: {"limit": n})),
    "URL": (limits.MAX_URL_CHARS, url),
    "page": (limits.MAX_PAGE, lambda topic, n: topic.api.get(f"{topic.path}/messages?limit={n}")),
    "token topics": (limits.MAX_TOPIC_PATTERNS, new_token(lambda n: {"topics": ["t"] * n})),
    "token groups": (limits.MAX_TOPIC_PATTERNS, new_token(lambda n: {"groups": ["t"] * n})),
    "token days": (limits.MAX_TOKEN_DAYS, new_token(lambda n: {"expires_in_days": n})),
    "calls a second": (limits.MAX_RATE_LIMIT, new_token(lambda n: {"rate_limit": n})),
    "token name": (128, new_token(lambda n: {"name": text(n)})),
    **{f"a topic's {name}": (most, setting(name)) for name, _, most in settings.numbers(settings.TOPIC)},
    **{f"a group's {name}": (most, group_setting(name)) for name, _, most in settings.numbers(settings.GROUP)},
}  # fmt: skip
LEAST: dict[str, tuple[int, Callable[[Topic, int], Reply]]] = {
    "batch": (1, post("/messages/batch", lambda n: {"messages": [{"body": 1}] * n})),
    "attempts": (1, setting("retry", lambda n: {"max_attempts": n})),
    "ladder": (1, setting("retry", lambda n: {"ladder": [1] * n})),
    "ladder step": (1, setting("retry", lambda n: {"ladder": [n]})),
    "factor": (1, setting("retry", lambda n: {"factor": n})),
    "jitter": (0, setting("retry", lambda n: {"jitter": n})),
    "expiry": (1, message(expires_in_seconds=lambda n: n)),
    "shard": (0, message(shard=lambda n: n)),
    "dedup id": (1, message(dedup_id=text)),
    "tag": (1, message(tag=text)),
    "key": (1, message(keys=lambda n: [text(n)])),
    "receive": (1, post("/groups/g/receive", lambda n: {"max": n})),
    "wait": (0, post("/groups/g/receive", lambda n: {"wait_seconds": n})),
    "receive's lease": (1, post("/groups/g/receive", lambda n: {"lease_seconds": n})),
    "receipts": (1, post("/groups/g/ack", lambda n: {"receipts": ["x"] * n})),
    "nack's delay": (0, post("/groups/g/nack", lambda n: {"receipts": ["x"], "delay_seconds": n})),
    "extension": (1, post("/groups/g/extend", lambda n: {"receipts": ["x"], "lease_seconds": n})),
    "page": (1, lambda topic, n: topic.api.get(f"{topic.path}/messages?limit={n}")),
    "token days": (1, new_token(lambda n: {"expires_in_days": n})),
    "calls a second": (1, new_token(lambda n: {"rate_limit": n})),
    "token scopes": (1, new_token(lambda n: {"scopes": ["admin"] * n})),
    **{f"a topic's {name}": (least, setting(name)) for name, least, _ in settings.numbers(settings.TOPIC)},
    **{f"a group's {name}": (least, group_setting(name)) for name, least, _ in settings.numbers(settings.GROUP)},
    "a topic's shards": (4, setting("shards")),  # as many as it has
}  # fmt: skip


def prepared(api: Client) -> Topic:
    topic = api.topic()
    topic.group()
    return topic


def state(topic: Topic) -> Any:
    """What is stored of a topic, but for its age, which time changes, and what the calls cost."""
    view = topic.api.get(topic.path).expect(200)
    view["stats"].pop("spent_usd", None)
    view["stats"]["groups"]["g"].pop("oldest_age_seconds")
    return view


@pytest.mark.parametrize("what", MOST)
def test_the_most_is_taken_and_one_more_is_refused(api: Client, what: str) -> None:
    most, attempt = MOST[what]
    topic = prepared(api)
    for n in (most - 1, most):
        reply = attempt(topic, n)
        assert reply.status in (200, 201), (n, reply.raw[:300])
    before = state(topic)
    reply = attempt(topic, most + 1)
    assert reply.status in (400, 413), (most + 1, reply.raw[:300])
    reply.refused(reply.status)
    assert state(topic) == before
    assert len(reply.raw) < 2000


@pytest.mark.parametrize("what", LEAST)
def test_the_least_is_taken_and_one_less_is_refused(api: Client, what: str) -> None:
    least, attempt = LEAST[what]
    topic = prepared(api)
    for n in (least, least + 1):
        reply = attempt(topic, n)
        assert reply.status in (200, 201), (n, reply.raw[:300])
    before = state(topic)
    reply = attempt(topic, least - 1)
    reply.refused(409 if what == "a topic's shards" else 400)
    assert state(topic) == before


def test_a_limit_on_characters_counts_characters_and_not_bytes(api: Client) -> None:
    topic = prepared(api)
    topic.produce(1, tag="😀" * limits.MAX_TAG_CHARS, dedup_id="😀" * limits.MAX_DEDUP_ID_CHARS)


def test_a_bodys_size_is_that_of_its_compact_json_in_utf_8(api: Client) -> None:
    topic = api.topic(max_body_bytes=10)
    for raw, status in (
        (b'{"body":  [1 ,\n 2,  "a"]  }', 201),
        ('{"body":"üüüü"}'.encode(), 201),
        ('{"body":"üüüüü"}'.encode(), 413),
        (b'{"body":"\\u00fc\\u00fc\\u00fc\\u00fc"}', 201),
        (b'{"body":12345678901}', 413),
    ):
        headers = {"Content-Type": "application/json"}
        reply = api.call("POST", f"{topic.path}/messages", raw=raw, headers=headers)
        assert reply.status == status, raw


@pytest.mark.parametrize("body", [1, "ü" * 50, {"a": [1, 2]}])
def test_a_topics_own_body_limit_holds_to_the_byte(api: Client, body: Any) -> None:
    size = len(json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode())
    fits, tight = api.topic(max_body_bytes=size), api.topic(max_body_bytes=max(1, size - 1))
    fits.produce(body)
    assert fits.accepted == 1
    if size > 1:
        api.post(f"{tight.path}/messages", {"body": body}).refused(413, "BODY_TOO_LARGE")
        assert tight.accepted == 0


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
