"""Every filter of a list of messages holds on every way to read one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import pytest

from chalicelib.services.inspect.lookup import Filters
from tests.support.browser import Browser
from tests.support.http import Client, ShiftingClock, Topic


@dataclass(frozen=True)
class Pair:
    """Two messages that differ in every filter of a list, with the times by which it sorts them."""

    topic: Topic
    first: Any
    second: Any
    times: tuple[str, str]


def in_log(topic: Topic, n: int) -> Any:
    return topic.produce(n, keys=["k"], tag="ab"[n], tenant="cd"[n], shard=n)


def delayed(topic: Topic, n: int) -> Any:
    return topic.produce(n, keys=["k"], tag="ab"[n], tenant="cd"[n], shard=n, delay_seconds=3_600)


def prepared(topic: Topic, n: int) -> Any:
    message = {"body": n, "keys": ["k"], "tag": "ab"[n], "tenant": "cd"[n], "shard": n}
    transaction = topic.api.post(f"{topic.path}/transactions", {"message": message}).expect(201)
    return {"id": transaction["message_id"], **transaction}


TIMES: dict[Callable[[Topic, int], Any], str] = {
    in_log: "accepted_at",
    delayed: "deliver_at",
    prepared: "prepared_at",
}
"""The ways to store a message, each with the time that lists sort it by."""


def cancel(topic: Topic, message: Any) -> None:
    if "transaction_id" in message:
        topic.api.post(f"/v1/transactions/{message['transaction_id']}/rollback").expect(200)
    else:
        topic.api.delete(f"{topic.path}/messages/{message['id']}").expect(204)


LISTS = {
    "log": (in_log, ""),
    "log, by key": (in_log, "key=k"),
    "delayed": (delayed, "status=DELAYED"),
    "delayed, with a key": (delayed, "status=DELAYED&key=k"),
    "delayed, by key": (delayed, "key=k"),
    "prepared": (prepared, "status=PREPARED"),
    "prepared, by key": (prepared, "key=k"),
}
QUERIES: Mapping[str, Callable[[Pair], str]] = {
    "group": lambda pair: "group=late",
    "status": lambda pair: "status=CANCELLED",
    "tag": lambda pair: "tag=b",
    "tenant": lambda pair: "tenant=d",
    "shard": lambda pair: "shard=1",
    "from_ms": lambda pair: f"from={pair.times[1]}",
    "to_ms": lambda pair: f"to={pair.times[0]}",
}
"""For each field of `Filters` a query that only one of the two messages passes: the second, but for `to_ms`."""


def pair_of(api: Client, clock: ShiftingClock, store: Callable[[Topic, int], Any]) -> Pair:
    topic = api.topic(shards=2)
    first = store(topic, 0)
    topic.group("late", **{"from": "latest"})
    clock.advance(10)
    second = store(topic, 1)
    return Pair(topic, first, second, (first[TIMES[store]], second[TIMES[store]]))


def ids(reply: Any) -> list[str]:
    return sorted(item["id"] for item in reply.expect(200)["items"])


def test_the_queries_name_every_filter() -> None:
    assert QUERIES.keys() == {field.name for field in fields(Filters)} - {"job_prefix"}, "of the list of jobs"


@pytest.mark.parametrize("field", QUERIES)
@pytest.mark.parametrize(("store", "query"), LISTS.values(), ids=LISTS.keys())
def test_no_list_forgets_a_filter(
    empty_api: Client, clock: ShiftingClock, store: Callable[[Topic, int], Any], query: str, field: str
) -> None:
    pair = pair_of(empty_api, clock, store)
    path, asks_status = f"{pair.topic.path}/messages", "status=" in query
    assert ids(empty_api.get(f"{path}?{query}")) == sorted((pair.first["id"], pair.second["id"]))
    expected = [pair.first["id"] if field == "to_ms" else pair.second["id"]]
    if field == "status":
        cancel(pair.topic, pair.second)
        if asks_status:
            assert ids(empty_api.get(f"{path}?{query}")) == [pair.first["id"]]
            return
    reply = empty_api.get(f"{path}?{query}&{QUERIES[field](pair)}")
    if field == "group" and asks_status:
        reply.refused(400, "VALIDATION")
    elif field == "group" and store is not in_log:
        assert ids(reply) == [], "no group is owed it yet"
    else:
        assert ids(reply) == expected


PAGES = {"log": "", "by key": "key=k", "by state": "group=all&status=RUNNING"}
"""The ways in which the console reads its list."""


@pytest.mark.parametrize("field", QUERIES)
@pytest.mark.parametrize("query", PAGES.values(), ids=PAGES.keys())
def test_the_page_of_messages_forgets_no_filter(
    empty_api: Client, clock: ShiftingClock, query: str, field: str
) -> None:
    if "group=" in query and field in ("group", "status"):
        return  # it has these already
    pair = pair_of(empty_api, clock, in_log)
    browser = Browser(empty_api.gateway)
    browser.sign_in(str(empty_api.token))
    path = f"/console/topics/{pair.topic.name}/messages?{query}"
    if field == "status":
        cancel(pair.topic, pair.second)
    if "group=" in query:
        assert len(pair.topic.group("all").receive()) == 2
    screen = browser.get(path)
    shown = [each["id"] in screen.html for each in (pair.first, pair.second)]
    assert shown == [True, True]
    screen = browser.get(f"{path}&{QUERIES[field](pair)}")
    shown = [each["id"] in screen.html for each in (pair.first, pair.second)]
    assert shown == ([True, False] if field == "to_ms" else [False, True])


@pytest.mark.parametrize("field", [name for name in QUERIES if name not in ("group", "status")])
def test_many_delayed_messages_are_changed_by_the_same_filters(
    empty_api: Client, clock: ShiftingClock, field: str
) -> None:
    pair = pair_of(empty_api, clock, delayed)
    path = f"{pair.topic.path}/messages?{QUERIES[field](pair)}"
    expected = [pair.first["id"] if field == "to_ms" else pair.second["id"]]
    assert ids(empty_api.call("PATCH", path, {"cancel": True, "dry_run": True})) == expected
