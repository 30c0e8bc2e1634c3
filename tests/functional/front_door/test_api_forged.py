"""Receipts and page tokens that were changed, made up, or belong elsewhere."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from chalicelib.api.calls import CALLS
from tests.support.http import Client, Group, Topic

FORGERIES: dict[str, Callable[[str], str]] = {
    "empty": lambda good: "",
    "cut": lambda good: good[:-1],
    "longer": lambda good: good + "A",
    "padded": lambda good: good + "=",
    "doubled": lambda good: good + good,
    "reversed": lambda good: good[::-1],
    "upper case": lambda good: good.upper(),
    "spaced": lambda good: good + " ",
    "broken line": lambda good: good + "\n",
    "other alphabet": lambda good: "+/" + good[2:],
    "made up": lambda good: base64.urlsafe_b64encode(b"\0" * 12 + b"a||0|0|1.aaaa|16").decode().rstrip("="),
    "unicode": lambda good: "ü😀" + good[2:],
    "null": lambda good: "\x00" + good[1:],
    "long": lambda good: "A" * 20_000,
    "traversal": lambda good: "../../etc/passwd",
}


A_FILTER = {
    "group": "a",
    "status": "NEW",
    "key": "k",
    "tag": "t",
    "tenant": "a",
    "shard": "0",
    "from": "2001-01-01T00:00:00Z",
    "to": "2999-01-01T00:00:00Z",
}
"""A filter that more than one message of `long_topic` passes."""
A_PARAMETER = A_FILTER | {
    "state": "UNDECIDED",
    "reason": "REJECTED",
    "since": "2001-01-01T00:00:00Z",
    "until": "2999-01-01T00:00:00Z",
    "error": "no",
    "topic": "a",
    "token": "a",
    "prefix": "a",
    "app": "a",
}
"""A value for each parameter of any list."""
NO_FILTERS = (
    "dedup_id",
    "limit",
    "page_token",
)  # a dedup id has one message, so there is no second page


@pytest.fixture
def group_and_lease(api: Client) -> tuple[Group, Any]:
    topic = api.topic()
    group = topic.group()
    topic.produce("x")
    [message] = group.receive()
    return group, message


@pytest.mark.parametrize("how", ["ack", "nack", "extend"])
def test_a_forged_receipt_is_invalid_and_changes_nothing(
    group_and_lease: tuple[Group, Any], how: str
) -> None:
    group, message = group_and_lease
    fields = {"lease_seconds": 60} if how == "extend" else {}
    forgeries = [forge(message["receipt"]) for forge in FORGERIES.values()]
    assert group.settle(how, forgeries, **fields) == ["RECEIPT_INVALID"] * len(forgeries)
    assert group.ack(message) == ["ok"]


def test_a_page_token_is_no_receipt_and_a_receipt_no_page_token(group_and_lease: tuple[Group, Any]) -> None:
    group, message = group_and_lease
    topic = group.topic
    topic.batch([{"body": n} for n in range(3)])
    token = topic.api.get(f"{topic.path}/messages?limit=1").expect(200)["next_page_token"]
    assert group.ack(token) == ["RECEIPT_INVALID"]
    topic.api.get(f"{topic.path}/messages?page_token={message['receipt']}").refused(400, "PAGE_TOKEN_INVALID")


@pytest.fixture(scope="module")
def long_topic(api: Client) -> Topic:
    """A topic with two of everything that is listed, beside another topic and another token."""
    api.topic()
    api.post("/v1/tokens", {"name": "another", "scopes": ["admin"]}).expect(201)
    topic = api.topic(shards=1)
    topic.batch([{"body": n, "tag": "t", "tenant": "a", "keys": ["k"]} for n in range(5)])
    for name in ("a", "b", "c"):
        group = topic.group(name)
        for consumer in ("a", "b", "c"):
            group.register(consumer)
    return topic


def lists(topic: Topic) -> list[str]:
    """Lists that have a second page after one item, each with what it is narrowed to."""
    messages = f"{topic.path}/messages?limit=1"
    (list_messages,) = (each for each in CALLS if each.handler.__name__ == "list_messages")
    filters = [f"&{name}={A_FILTER[name]}" for name in list_messages.query if name not in NO_FILTERS]
    filters += ["", "&group=a&status=NEW"]
    groups = f"{topic.path}/groups"
    return [
        *(messages + filters_of_list for filters_of_list in filters),
        f"{groups}?limit=1",
        f"{groups}/a/consumers?limit=1",
        f"{groups}/b/consumers?limit=1",
        "/v1/topics?limit=1",
        "/v1/stats?limit=1",
        "/v1/tokens?limit=1",
    ]


def test_a_page_token_is_good_for_its_own_list_only(long_topic: Topic) -> None:
    api = long_topic.api
    other = api.topic()
    other.produce("y")
    paths = [*lists(long_topic), f"{other.path}/messages?limit=1"]
    for path in lists(long_topic):
        token = api.get(path).expect(200)["next_page_token"]
        for elsewhere in paths:
            reply = api.get(f"{elsewhere}&page_token={token}")
            if elsewhere == path:
                reply.expect(200)
            else:
                reply.refused(400, "PAGE_TOKEN_INVALID")


def test_a_page_token_is_good_for_the_parameters_that_it_was_made_for(long_topic: Topic) -> None:
    dead = long_topic.group("dead")
    dead.nack(*dead.receive(2), dead_letter=True)
    for n in range(2):
        long_topic.api.post(f"{long_topic.path}/transactions", {"message": {"body": n}}).expect(201)
        later = {"body": n, "delay_seconds": 60}
        long_topic.api.put(f"{long_topic.path}/jobs/a{n}", later).expect(201)
        schedule = {"topic": long_topic.name, "every_seconds": 60, "message": {"body": n}}
        long_topic.api.put(f"/v1/schedules/{long_topic.name}-{n}", schedule).expect(201)
    narrowed = [
        (call.path.format(topic=long_topic.name, group="dead"), set(call.query).difference(NO_FILTERS))
        for call in CALLS
        if call.method == "GET"
        and "page_token" in call.query
        and call.path != "/v1/archive"  # it has no days
    ]
    assert len([path for path, names in narrowed if names]) >= 4
    for path, names in narrowed:
        for name in names:
            token = long_topic.api.get(f"{path}?limit=1").expect(200)["next_page_token"]
            reply = long_topic.api.get(f"{path}?limit=1&{name}={A_PARAMETER[name]}&page_token={token}")
            reply.refused(400, "PAGE_TOKEN_INVALID")


def test_filters_that_read_alike_do_not_share_page_tokens(api: Client) -> None:
    topic = api.topic()
    topic.batch([{"body": n, "keys": ["a|tag=b"]} for n in range(2)])
    token = api.get(f"{topic.path}/messages?limit=1&key=a%7Ctag%3Db").expect(200)["next_page_token"]
    api.get(f"{topic.path}/messages?limit=1&key=a&tag=b&page_token={token}").refused(
        400, "PAGE_TOKEN_INVALID"
    )


def test_a_page_token_goes_with_any_limit(long_topic: Topic) -> None:
    token = long_topic.api.get(f"{long_topic.path}/messages?limit=1").expect(200)["next_page_token"]
    page = long_topic.api.get(f"{long_topic.path}/messages?limit=3&page_token={token}").expect(200)
    assert [m["body"] for m in page["items"]] == [3, 2, 1]


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES.keys())
def test_a_forged_page_token_is_refused(long_topic: Topic, forge: Callable[[str], str]) -> None:
    from urllib.parse import quote

    for path in lists(long_topic):
        good = long_topic.api.get(path).expect(200)["next_page_token"]
        reply = long_topic.api.get(f"{path}&page_token={quote(forge(good)[:7000])}")
        reply.refused(400, "PAGE_TOKEN_INVALID")
