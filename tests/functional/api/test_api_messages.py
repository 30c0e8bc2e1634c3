"""Seeing messages over HTTP: one by its id, lists with filters and pages."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from chalicelib import wiring
from chalicelib.api.calls import CALLS
from chalicelib.domain.attention import Attention, Kind
from chalicelib.domain.times import HOUR_SECONDS
from tests.support.http import Client, ShiftingClock, Topic


def listed(topic: Topic, query: str = "", limit: int = 200) -> list[Any]:
    pages = topic.api.pages(f"{topic.path}/messages{query}", limit)
    return [message["body"] for page in pages for message in page]


def test_a_message_is_shown_with_everything_known_about_it(api: Client) -> None:
    topic = api.topic()
    topic.group("a")
    topic.group("b")
    fields = {"keys": ["k"], "tag": "t", "ordering_key": "o", "headers": {"h": "v"}}
    message = topic.produce({"x": 1}, **fields, expires_in_seconds=60)
    view = api.get(f"{topic.path}/messages/{message['id']}").expect(200)
    assert view.items() >= {**fields, "body": {"x": 1}, "topic": topic.name, "status": "NEW"}.items()
    assert view.items() >= {n: message[n] for n in ("id", "shard", "offset", "accepted_at")}.items()
    fresh = {
        "status": "NEW",
        "attempts": 0,
        "next_attempt_at": None,
        "last_error": None,
        "retries_left": 15,
    }
    assert view["deliveries"] == {"a": fresh, "b": fresh}


@pytest.mark.parametrize(
    "change",
    [
        lambda i: i[:-1] + ("1" if i[-1] != "1" else "2"),
        lambda i: ("0" if i[0] != "0" else "1") + i[1:],
        lambda i: i + "0",
        lambda i: i.upper() + "A",
        lambda i: "x" * 128,
        lambda i: "0" * 12 + "-zzzz-zzzzzzzzzzzzz",
        lambda i: "0" * 12 + "-00-0",
        lambda i: quote("ü😀 \x00"),
        lambda i: "..",
        lambda i: "%2e%2e%2f",
        lambda i: "'; drop table",
    ],
)
def test_an_id_that_is_none_is_not_found_and_not_repeated(api: Client, change: Any) -> None:
    topic = api.topic()
    message = topic.produce("x")
    wrong = change(message["id"])
    reply = api.get(f"{topic.path}/messages/{quote(wrong, safe='%')}")
    reply.refused(404)
    assert wrong not in reply.raw.decode()


def test_an_id_belongs_to_its_topic(api: Client) -> None:
    message = api.topic().produce("x")
    other = api.topic()
    other.produce("y")
    api.get(f"{other.path}/messages/{message['id']}").refused(404, "MESSAGE_NOT_FOUND")


def test_a_list_is_newest_first_over_all_shards(api: Client, clock: ShiftingClock) -> None:
    topic = api.topic(shards=3)
    for n in range(9):
        clock.advance(1)
        topic.produce(n, shard=(n * 2) % 3)
    assert listed(topic) == list(range(8, -1, -1))
    assert listed(topic, limit=2) == list(range(8, -1, -1))


def test_a_page_holds_32_messages_unless_asked_otherwise(api: Client) -> None:
    topic = api.topic()
    topic.batch([{"body": n} for n in range(40)])
    page = api.get(f"{topic.path}/messages").expect(200)
    assert len(page["items"]) == 32
    assert page["next_page_token"]
    rest = api.get(f"{topic.path}/messages?page_token={page['next_page_token']}").expect(200)
    assert len(rest["items"]) == 8


def test_filters_narrow_a_list_and_may_be_combined(api: Client, clock: ShiftingClock) -> None:
    topic = api.topic(shards=2)
    messages = []
    for n in range(8):
        clock.advance(1)
        fields = {"tag": ("even", "odd")[n % 2], "keys": [f"k{n % 3}", "ключ|&=ü"], "shard": n // 4}
        messages.append(topic.produce(n, **fields))
    assert listed(topic, "?tag=odd") == [7, 5, 3, 1]
    assert listed(topic, "?key=k1") == [7, 4, 1]
    assert listed(topic, f"?key={quote('ключ|&=ü')}") == [7, 6, 5, 4, 3, 2, 1, 0]
    assert listed(topic, "?shard=1") == [7, 6, 5, 4]
    assert listed(topic, "?tag=even&shard=0&key=k2") == [2]
    assert listed(topic, f"?from={messages[2]['accepted_at']}&to={messages[5]['accepted_at']}") == [
        5,
        4,
        3,
        2,
    ]
    assert listed(topic, "?tag=none") == listed(topic, "?key=k") == []


def test_the_messages_of_a_key_come_newest_first_in_pages_of_their_own(
    api: Client, clock: ShiftingClock
) -> None:
    topic = api.topic(shards=3)
    for n in range(9):
        clock.advance(1)
        topic.batch([{"body": n, "keys": ["order-188", f"n{n}"]}, {"body": "other", "keys": ["order-18"]}])
    topic.publish(b"raw", headrace_key="order-188").expect(201)
    page = api.get(f"{topic.path}/messages?key=order-188&limit=1").expect(200)
    assert base64.b64decode(page["items"][0]["body_base64"]) == b"raw"
    rest = f"?key=order-188&to={topic.produce(9, keys=['order-188'])['accepted_at']}"
    bodies = [m.get("body") for p in api.pages(f"{topic.path}/messages{rest}", 2) for m in p]
    assert bodies == [9, None, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    token = page["next_page_token"]
    api.get(f"{topic.path}/messages?key=order-18&page_token={token}").refused(400, "PAGE_TOKEN_INVALID")
    api.get(f"{topic.path}/messages?page_token={token}").refused(400, "PAGE_TOKEN_INVALID")


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z"])
def test_the_ends_of_time_are_times_too(api: Client, time: str) -> None:
    topic = api.topic()
    topic.produce(1, keys=["k"])
    past = time < "2000"
    assert listed(topic, f"?key=k&from={time}") == ([1] if past else [])
    assert listed(topic, f"?key=k&to={time}") == ([] if past else [1])
    assert listed(topic, f"?key=k&from={time}&to={time}") == []


def test_a_list_can_be_narrowed_to_a_groups_status(api: Client) -> None:
    topic = api.topic(shards=1)
    for n in range(5):
        topic.produce(n)
    group = topic.group()
    messages = group.receive(4)
    group.ack(messages[0])
    group.nack(messages[1], delay_seconds=60)
    group.nack(messages[2], dead_letter=True)
    bodies = {
        s: listed(topic, f"?group=g&status={s}") for s in ("NEW", "RUNNING", "SUCCESS", "RETRYING", "DEAD")
    }
    assert bodies == {"NEW": [4], "RUNNING": [3], "SUCCESS": [0], "RETRYING": [1], "DEAD": [2]}
    assert listed(topic, "?group=g") == [4, 3, 2, 1, 0]


def test_of_a_group_only_messages_of_its_log_are_listed(api: Client) -> None:
    topic = api.topic(shards=1)
    topic.group("g")
    there = topic.produce(1, keys=["k"])["id"]
    ids = [topic.produce(n, keys=["k"], delay_seconds=3600)["id"] for n in (2, 3)]
    for id in (there, ids[0]):
        api.delete(f"{topic.path}/messages/{id}").expect(204)
    assert listed(topic, "?key=k&status=CANCELLED") == [2, 1]
    assert listed(topic, "?key=k&status=CANCELLED&group=g") == [1]
    assert listed(topic, "?status=CANCELLED&group=g") == [1]
    assert listed(topic, "?key=k&group=g") == [1]
    for status in ("DELAYED", "PREPARED"):
        api.get(f"{topic.path}/messages?status={status}&group=g").expect(400)


def test_pages_stay_true_while_others_produce(api: Client) -> None:
    topic = api.topic(shards=3)
    topic.batch([{"body": n, "ordering_key": str(n)} for n in range(50)])
    bodies: list[Any] = []
    token = ""
    while True:
        page = api.get(f"{topic.path}/messages?limit=7{token}").expect(200)
        bodies += [m["body"] for m in page["items"]]
        topic.batch([{"body": "later", "ordering_key": str(n)} for n in range(5)])
        if "next_page_token" not in page:
            break
        token = f"&page_token={page['next_page_token']}"
    assert sorted(bodies) == list(range(50))


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("group=g&status=new", "status"),
        ("group=g&status=DELAYED", "status"),
        ("key=", "key"),
        ("key=" + "x" * 257, "key"),
        ("shard=-1", "shard"),
        ("shard=x", "shard"),
        ("shard=1.0", "shard"),
        ("shard=%D9%A1", "shard"),
        ("from=yesterday", "from"),
        ("to=2026-01-01", "to"),
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=-1", "limit"),
        ("limit=", "limit"),
        ("limit=1e2", "limit"),
        ("limit=%D9%A1", "limit"),
        ("limit=99999999999999999999", "limit"),
        ("tag=a&tag=b", "tag"),
        ("limit=5&limit=5", "limit"),
    ],
)
def test_a_filter_that_is_none_is_refused(api: Client, query: str, path: str) -> None:
    topic = api.topic()
    topic.group()
    problem = api.get(f"{topic.path}/messages?{query}").refused(400, "VALIDATION")
    assert problem["errors"][0]["path"] == path


def test_a_list_refuses_a_shard_or_a_group_the_topic_does_not_have(api: Client) -> None:
    topic = api.topic(shards=2)
    api.get(f"{topic.path}/messages?shard=2").refused(422, "NO_SUCH_SHARD")
    api.get(f"{topic.path}/messages?group=nobody").refused(404, "GROUP_NOT_FOUND")


def test_a_dedup_id_finds_the_message_that_it_stands_for(api: Client, clock: ShiftingClock) -> None:
    topic = api.topic(dedup_window_seconds=60)
    path = f"{topic.path}/messages"
    now, later = topic.produce(1, dedup_id="now"), topic.produce(2, dedup_id="job 7", delay_seconds=50)
    half = api.post(f"{topic.path}/transactions", {"message": {"body": 3, "dedup_id": "half"}}).expect(201)
    for dedup_id, id, status in (
        ("now", now["id"], "NEW"),
        ("job%207", later["id"], "DELAYED"),
        ("half", half["message_id"], "PREPARED"),
    ):
        view = api.get(f"{path}?dedup_id={dedup_id}").expect(200)
        assert view.keys() == {"items"}
        assert [(each["id"], each["status"]) for each in view["items"]] == [(id, status)]
    for nobody in (f"{path}?dedup_id=another", f"{api.topic().path}/messages?dedup_id=now"):
        assert api.get(nobody).expect(200) == {"items": []}
    others = ("key=k", "tag=t", "shard=0", "status=NEW", "group=g", "from=2026-01-01T00:00:00Z")
    for query in (*(f"dedup_id=now&{each}" for each in others), "dedup_id=", f"dedup_id={'x' * 129}"):
        api.get(f"{path}?{query}").refused(400, "VALIDATION")
    clock.advance(61)
    assert api.get(f"{path}?dedup_id=now").expect(200) == {"items": []}, "its window is over"


FOREIGN = "foreign"
DAY = {"from": "2030-01-01T00:00:00.000Z", "to": "2030-01-02T00:00:00.000Z"}
PAGED = {
    "/v1/topics": "/v1/topics",
    "/v1/stats": "/v1/stats",
    "/v1/attention": "/v1/attention",
    "/v1/topics/{topic}/replays": "{topic}/replays",
    "/v1/topics/{topic}/groups": "{topic}/groups",
    "/v1/topics/{topic}/groups/{group}/consumers": "{topic}/groups/g/consumers",
    "/v1/topics/{topic}/groups/{group}/dead-letters": "{topic}/groups/g/dead-letters",
    "/v1/topics/{topic}/messages": "{topic}/messages",
    "/v1/topics/{topic}/transactions": "{topic}/transactions",
    "/v1/topics/{topic}/jobs": "{topic}/jobs",
    "/v1/schedules": "/v1/schedules",
}


def readings(token: str) -> Iterator[bytes]:
    """All readable contents of a token."""
    yield token.encode()
    for start in range(4):
        part = token[start:]
        yield base64.urlsafe_b64decode(part[: len(part) // 4 * 4])


@pytest.fixture(scope="module")
def topic(api: Client) -> Iterator[Topic]:
    """A topic with two of everything, between foreign ones."""
    prefix = api.topic().name
    mine = Topic(api, f"{prefix}-m.1")
    names = [f"{prefix}-{name}" for name in (f"a-{FOREIGN}", "m.1", f"z-{FOREIGN}")]
    states = [Attention(kind, 1, name) for name in names for kind in (Kind.UNDECIDED, Kind.BACKLOG)]
    marks = wiring.deps().adapters.marks
    marks.note_changes([], states)
    schedules: list[str] = []
    for name in (f"a-{FOREIGN}", "m", f"z-{FOREIGN}"):
        for number in range(3):
            place = f"/v1/topics/{prefix}-{name}.{number}"
            api.put(place).expect(201)
            yearly = {"topic": place.rpartition("/")[2], "cron": "0 0 1 1 *", "message": {"body": 1}}
            schedules.append(f"/v1/schedules/{yearly['topic']}")
            api.put(schedules[-1], yearly).expect(201)
            for _ in range(2):
                api.post(f"{place}/messages", {"body": 1, "delay_seconds": HOUR_SECONDS}).expect(201)
    for number in range(3):
        group = mine.group(f"g{'' if number == 0 else number}")
        api.put(f"{group.path}/consumers/c{number}").expect(201)
        api.put(f"{mine.path}/groups/g/consumers/d{number}").expect(201)
        mine.produce(number, keys=["k"])
        transaction = {"message": {"body": number}, "check_url": "http://127.0.0.1:9/check"}
        api.post(f"{mine.path}/transactions", transaction).expect(201)
        for into in (mine.name, f"{prefix}-z-{FOREIGN}.0", mine.name):
            api.post(f"{mine.path}/replays", {**DAY, "into": into}).expect(202)
    messages = api.post(f"{mine.path}/groups/g/receive", {"max": 3}).expect(200)["messages"]
    receipts = [message["receipt"] for message in messages]
    api.post(f"{mine.path}/groups/g/nack", {"receipts": receipts, "dead_letter": True}).expect(200)
    for job in ("a", "b"):
        api.put(f"{mine.path}/jobs/{job}", {"body": 1, "delay_seconds": HOUR_SECONDS}).expect(201)
    yield mine
    marks.note_changes(states, [])
    for path in schedules:
        api.delete(path).expect(204)


@pytest.fixture(scope="module")
def holder(api: Client, topic: Topic) -> Client:
    """A client whose token is limited to some topics."""
    patterns = [f"{topic.name[:-1]}*", f"{topic.name}-none"]
    grant = {"name": "t", "scopes": ["produce", "consume", "admin"], "topics": patterns}
    return api.with_token(api.post("/v1/tokens", grant).expect(201)["token"])


def walk(client: Client, path: str, limit: int) -> tuple[list[Any], list[str]]:
    """Everything a list shows, and the page tokens on the way."""
    items: list[Any] = []
    tokens: list[str] = []
    page_token: str | None = None
    while page_token is not None or not tokens:
        joint = "&" if "?" in path else "?"
        token = f"&page_token={page_token}" if page_token else ""
        page = client.get(f"{path}{joint}limit={limit}{token}").expect(200)
        items += page["items"]
        page_token = page.get("next_page_token")
        if page_token is None:
            break
        tokens.append(page_token)
    return items, tokens


def test_every_paged_list_is_looked_at() -> None:
    paths = {call.path for call in CALLS if "page_token" in call.query}
    assert paths - {"/v1/tokens", "/v1/audit", "/v1/archive"} == set(PAGED), (
        "these are listed to nobody who is limited"
    )


@pytest.mark.parametrize(
    "path", [*PAGED.values(), "{topic}/messages?status=DELAYED", "{topic}/messages?key=k"]
)
def test_a_page_token_names_nothing_foreign(holder: Client, topic: Topic, path: str) -> None:
    place = path.format(topic=topic.path)
    whole, _ = walk(holder, place, 200)
    items, tokens = walk(holder, place, 1)
    assert len(items) == len(whole)
    assert len(items) > 1
    assert tokens
    assert FOREIGN not in json.dumps(items)
    for token in tokens:
        assert not [text for text in readings(token) if FOREIGN.encode() in text]


def test_a_limited_list_has_full_pages_and_no_empty_last_one(holder: Client, topic: Topic) -> None:
    for path in ("/v1/topics", "/v1/stats"):
        pages = holder.pages(path, 2)
        assert [len(page) for page in pages] == [2, 1]
        assert [item["topic"][-3:] for page in pages for item in page] == ["m.0", "m.1", "m.2"]
