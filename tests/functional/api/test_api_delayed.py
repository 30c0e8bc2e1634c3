"""Delayed messages through HTTP, one and many."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast
from urllib.parse import quote

import pytest

from chalicelib import wiring
from chalicelib.api.fields import at
from chalicelib.api.parse import time_ms
from chalicelib.domain.limits import MAX_DELAY_SECONDS
from chalicelib.domain.times import HOUR_SECONDS
from chalicelib.store.timers import Timers
from chalicelib.wiring import Deps
from tests.support.background import Background
from tests.support.http import Client, Reply, Topic
from tests.support.troubled import Interrupted


def test_a_delayed_message_is_answered_with_its_time_and_arrives_then(
    api: Client, background: Background
) -> None:
    topic = api.topic()
    group = topic.group()
    message = topic.produce({"n": 1}, delay_seconds=60, keys=["k-1"])
    assert (message["status"], message["offset"]) == ("DELAYED", None)
    view = api.get(f"{topic.path}/messages/{message['id']}").expect(200)
    assert (view["status"], view["body"], view["deliver_at"]) == (
        "DELAYED",
        {"n": 1},
        message["deliver_at"],
    )
    assert topic.accepted == 0
    background.pass_time(59)
    assert group.receive() == []
    background.pass_time(2)
    (claimed_message,) = group.receive()
    assert (claimed_message["id"], claimed_message["keys"]) == (message["id"], ["k-1"])
    view = api.get(f"{topic.path}/messages/{message['id']}").expect(200)
    assert (view["status"], view["offset"]) == ("RUNNING", claimed_message["offset"])
    group.ack(claimed_message)
    (item,) = api.get(f"{topic.path}/messages?key=k-1").expect(200)["items"]
    assert (item["id"], item["status"]) == (message["id"], "SUCCESS")
    trace = api.get(f"{topic.path}/messages/{message['id']}/trace").expect(200)["events"]
    assert [e["event"] for e in trace] == ["accepted", "delayed", "due", "delivered"]


def test_a_batch_may_mix_delayed_and_immediate_messages(api: Client) -> None:
    topic = api.topic()
    results = topic.batch([{"body": 1}, {"body": 2, "delay_seconds": 5}, {"body": 3, "delay_seconds": -1}])
    assert [r.get("status") for r in results] == ["NEW", "DELAYED", None]
    assert results[2]["error"]["code"] == "VALIDATION"
    assert topic.accepted == 1


def test_a_delay_counts_from_the_acceptance_however_long_storing_takes(
    api: Client, background: Background
) -> None:
    topic = api.topic()
    with background.clock.slow():
        alone = topic.produce(1, delay_seconds=60)
        batch = topic.batch([{"body": n, "delay_seconds": 60} for n in range(3)])
        half = api.post(f"{topic.path}/transactions", {"message": {"body": 1, "delay_seconds": 60}}).expect(
            201
        )
        decision = api.post(f"/v1/transactions/{half['transaction_id']}/commit").expect(200)
    assert {_ms(each["deliver_at"]) - _ms(each["accepted_at"]) for each in [alone, *batch]} == {60_000}
    assert _ms(decision["deliver_at"]) - _ms(decision["decided_at"]) == 60_000


def _ms(text: str) -> int:
    return time_ms(text, "")


def just_before_it_moves(
    api: Client, background: Background, method: str, path: str, body: Any = None
) -> Reply:
    """A call during which the message comes due: after it was read, before it is changed."""
    adapters = background.deps.adapters
    timers = cast(Timers, Interrupted(adapters.timers, [1], [background.move]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring, "deps", lambda: Deps(replace(adapters, timers=timers)))
        return api.call(method, path, body)


def test_a_message_that_comes_due_meanwhile_is_changed_in_its_log(
    api: Client, background: Background
) -> None:
    topic = api.topic()
    group = topic.group()
    changes = {
        "DELETE": None,
        "PATCH": {"body": "new"},
        "PATCH the time": {"deliver_at": "2030-01-01T00:00:00Z"},
    }
    replies = []
    for call, change in changes.items():
        path = f"{topic.path}/messages/{topic.produce(call, delay_seconds=5)['id']}"
        background.clock.advance(5)
        replies.append(just_before_it_moves(api, background, call.split()[0], path, change))
    replies[0].expect(204)
    assert replies[1].expect(200)["status"] == "NEW"
    replies[2].refused(409, "ALREADY_DUE")
    assert sorted(group.bodies()) == ["PATCH the time", "new"]


def test_a_waiting_message_is_changed_hurried_and_taken_back(api: Client, background: Background) -> None:
    topic = api.topic()
    group = topic.group()
    first, second = (topic.produce(n, delay_seconds=3_600)["id"] for n in (1, 2))
    path = f"{topic.path}/messages/{first}"
    view = api.call("PATCH", path, {"body": {"new": 1.50}, "headers": {"a": "b"}}).expect(200)
    assert (view["body"], view["headers"], view["status"]) == ({"new": 1.50}, {"a": "b"}, "DELAYED")
    now = at(background.clock.now_ms())
    api.call("PATCH", path, {"deliver_at": now}).expect(200)
    api.call("DELETE", f"{topic.path}/messages/{second}").expect(204)
    api.call("DELETE", f"{topic.path}/messages/{second}").expect(204)
    assert api.get(f"{topic.path}/messages/{second}").expect(200)["status"] == "CANCELLED"
    background.pass_time(4_000)
    assert [(m["id"], m["body"]) for m in group.receive()] == [(first, {"new": 1.50})]


def test_a_job_of_ones_own_choosing_is_added_once(api: Client) -> None:
    topic = api.topic()
    job = {"body": {"job": 7}, "dedup_id": "job-7", "delay_seconds": 60}
    first = api.post(f"{topic.path}/messages", job).expect(201)
    again = api.post(f"{topic.path}/messages", job).expect(200)
    assert (again["id"], again["duplicate"], again["status"]) == (first["id"], True, "DELAYED")
    api.post(f"{topic.path}/messages", {**job, "body": 8}).refused(409, "DEDUP_MISMATCH")


def job(topic: Topic, name: str) -> str:
    return f"{topic.path}/jobs/{quote(name, safe='')}"


def test_a_job_is_created_replaced_and_deleted_by_its_name(api: Client, background: Background) -> None:
    topic = api.topic()
    group = topic.group()
    path = job(topic, "order/188 é%2F")
    first = api.put(path, {"body": 1, "delay_seconds": 60, "keys": ["k"], "expires_in_seconds": 9}).expect(
        201
    )
    background.pass_time(50)
    again = api.put(path, {"body": {"n": 2}, "delay_seconds": 60, "tag": "late"}).expect(200)
    assert (again["id"], again["status"], again["duplicate"]) == (first["id"], "DELAYED", False)
    assert again["job"] == first["job"] == "order/188 é%2F"
    assert again["deliver_at"] > first["deliver_at"]
    view = api.get(path).expect(200)
    assert (view["id"], view["job"], view["body"], view["tag"]) == (
        first["id"],
        "order/188 é%2F",
        {"n": 2},
        "late",
    )
    assert (view["keys"], "expires_at" in view) == ([], False), "all of it is replaced"
    trace = api.get(f"{topic.path}/messages/{first['id']}/trace").expect(200)["events"]
    assert [e["event"] for e in trace] == ["accepted", "delayed", "edited", "postponed"]
    assert trace[-1]["by"]["name"]
    background.pass_time(15)
    assert group.receive() == [], "it was put off"
    api.delete(path).expect(204)
    api.delete(path).refused(404, "JOB_NOT_FOUND")
    assert api.get(path).expect(200)["status"] == "CANCELLED"
    assert api.put(path, {"body": 3}).expect(201)["id"] != first["id"]
    assert [m["job"] for m in group.receive()] == ["order/188 é%2F"]


def test_a_job_in_its_log_is_replaced_until_a_group_claims_it_and_free_when_all_have_ended_it(
    api: Client, background: Background
) -> None:
    topic = api.topic()
    group, other = topic.group("g"), topic.group("h")
    path = job(topic, "j")
    old = api.put(path, {"body": "old", "delay_seconds": 5}).expect(201)
    background.pass_time(6)
    new = api.put(path, {"body": "new", "ordering_key": "k"}).expect(200)
    assert new["id"] != old["id"]
    background.pass_time(1)
    assert api.get(f"{topic.path}/messages/{old['id']}").expect(200)["status"] == "CANCELLED"
    (claimed,) = group.receive()
    assert (claimed["id"], claimed["body"]) == (new["id"], "new")
    for method, body in (("PUT", {"body": "newer"}), ("DELETE", None)):
        assert "'g'" in api.call(method, path, body).refused(409, "ALREADY_CLAIMED")["detail"]
    group.ack(claimed)
    api.put(path, {"body": "newer"}).refused(409, "ALREADY_CLAIMED")
    (claimed,) = other.receive()
    other.nack(claimed, dead_letter=True, delay_seconds=None)
    api.delete(path).refused(404, "JOB_NOT_FOUND")
    assert api.get(path).expect(200)["status"] == "DEAD", "the last one is shown"
    api.put(path, {"body": "next"}).expect(201)


def test_jobs_are_listed_by_the_beginning_of_their_names(api: Client) -> None:
    topic = api.topic()
    for n, name in enumerate(("b/1", "a/2", "a/1", "a")):
        api.put(job(topic, name), {"body": n, "delay_seconds": 60 - n}).expect(201)
    topic.produce("no job", delay_seconds=9)
    api.delete(job(topic, "a")).expect(204)
    pages = api.pages(f"{topic.path}/jobs?prefix=a", 1)
    assert [each["job"] for page in pages for each in page] == ["a/1", "a/2"]
    assert len(api.get(f"{topic.path}/jobs").expect(200)["items"]) == 3


def test_a_token_touches_only_the_jobs_of_its_patterns(api: Client) -> None:
    topic = api.topic()
    theirs = api.put(job(topic, "partner-8/1"), {"body": 1, "delay_seconds": 60}).expect(201)
    partner = api.with_token(api.new_token("produce", "consume", jobs=["partner-7/*"])["token"])
    own = partner.put(job(topic, "partner-7/1"), {"body": 1, "delay_seconds": 60}).expect(201)
    for name in ("partner-8/1", "partner-8/none"):
        for method, body in (("PUT", {"body": 2}), ("GET", None), ("DELETE", None)):
            partner.call(method, job(topic, name), body).refused(403, "JOB_FORBIDDEN")
    for method, change in (("PATCH", {"body": 2}), ("DELETE", None)):
        partner.call(method, f"{topic.path}/messages/{theirs['id']}", change).refused(403, "JOB_FORBIDDEN")
    items = partner.call("PATCH", f"{topic.path}/messages", {"cancel": True}).expect(200)["items"]
    assert [(each["id"], each.get("error", {}).get("code")) for each in items] == [
        (theirs["id"], "JOB_FORBIDDEN"),
        (own["id"], None),
    ]
    assert partner.get(f"{topic.path}/jobs").expect(200)["items"] == []
    assert api.get(f"{topic.path}/jobs").expect(200)["items"] != []
    maker = api.with_token(api.new_token("admin", jobs=["partner-7/*"])["token"])
    for jobs, status in ((["*"], 403), (["partner-*"], 403), (["partner-7/a*"], 201)):
        assert maker.post("/v1/tokens", {"name": "x", "scopes": ["admin"], "jobs": jobs}).status == status


@pytest.mark.parametrize(
    ("name", "body", "status", "code"),
    [
        ("a\nb", {"body": 1}, 400, "VALIDATION"),
        (" ", {"body": 1}, 400, "VALIDATION"),
        ("é" * 129, {"body": 1}, 400, "VALIDATION"),
        ("..", {"body": 1}, 400, "VALIDATION"),
        ("j", {"body": 1, "dedup_id": "d"}, 400, "VALIDATION"),
        ("j", {"body": 1, "shard": 99}, 422, "NO_SUCH_SHARD"),
    ],
)
def test_a_job_that_cannot_be_is_refused(api: Client, name: str, body: Any, status: int, code: str) -> None:
    topic = api.topic()
    api.put(job(topic, name).replace("..", "%2E%2E"), body).refused(status, code)
    api.put(f"{topic.path}/jobs/%FF", {"body": 1}).refused(400, "VALIDATION")


def test_a_delay_out_of_reach_is_refused(api: Client) -> None:
    topic = api.topic()
    topic.produce(1, delay_seconds=MAX_DELAY_SECONDS)
    for fields in (
        {"deliver_at": "2999-01-01T00:00:00.000Z"},
        {"delay_seconds": MAX_DELAY_SECONDS + 1},
        {"delay_seconds": 10**30},
    ):
        api.post(f"{topic.path}/messages", {"body": 1, **fields}).refused(422, "DELAY_TOO_LONG")
    header = {"headrace_delay_seconds": str(MAX_DELAY_SECONDS + 1)}
    topic.publish(b"1", **header).refused(422, "DELAY_TOO_LONG")
    both = {"body": 1, "deliver_at": "2999-01-01T00:00:00.000Z", "delay_seconds": 1}
    api.post(f"{topic.path}/messages", both).refused(422, "DELAY_AMBIGUOUS")


# The list of what waits


def waiting(topic: Topic, query: str = "", limit: int = 200) -> list[Any]:
    pages = topic.api.pages(f"{topic.path}/messages?status=DELAYED{query}", limit)
    return [message["body"] for page in pages for message in page]


def test_delayed_messages_of_a_topic_are_listed_soonest_first(api: Client, background: Background) -> None:
    topic, other = api.topic(shards=2), api.topic()
    assert waiting(topic) == []
    topic.produce("now")
    for n in (5, 3, 9, 1, 7):
        message = topic.produce(n, delay_seconds=n * 60, keys=[f"k{n}"])
        other.produce("not ours", delay_seconds=n * 60 - 1)
        if n == 9:
            api.delete(f"{topic.path}/messages/{message['id']}").expect(204)
    assert waiting(topic) == waiting(topic, limit=1) == [1, 3, 5, 7]
    [view] = api.get(f"{topic.path}/messages?status=DELAYED&key=k3").expect(200)["items"]
    assert (view["status"], view["keys"], view["offset"], view["deliveries"]) == (
        "DELAYED",
        ["k3"],
        None,
        {},
    )
    assert api.get(f"{topic.path}/messages/{view['id']}").expect(200) == view
    background.pass_time(61)
    assert waiting(topic) == [3, 5, 7]


def test_what_others_have_waiting_costs_short_pages_and_hides_nothing(api: Client) -> None:
    topic, other = api.topic(), api.topic()
    topic.produce("first", delay_seconds=10)
    for _ in range(2):
        other.batch([{"body": "x", "delay_seconds": 864_000} for _ in range(1000)])
    topic.produce("last", delay_seconds=864_010)
    pages = api.pages(f"{topic.path}/messages?status=DELAYED", 200)
    assert [message["body"] for page in pages for message in page] == ["first", "last"]
    assert 2 <= len(pages) < 20


pytestmark = pytest.mark.usefixtures("no_timers")


@pytest.fixture
def topic(api: Client) -> Topic:
    return api.topic()


def still_waiting(topic: Topic, *delays: int, **fields: Any) -> list[str]:
    """Messages that are due after so many seconds."""
    return [topic.produce(n, delay_seconds=delay, **fields)["id"] for n, delay in enumerate(delays)]


def changed(topic: Topic, query: str = "", **body: Any) -> Any:
    return topic.api.call("PATCH", f"{topic.path}/messages{query}", body).expect(200)


def times(topic: Topic, *ids: str) -> list[str]:
    views = [topic.api.get(f"{topic.path}/messages/{id}").expect(200) for id in ids]
    return [each["deliver_at"] if each["status"] == "DELAYED" else each["status"] for each in views]


def test_those_of_a_tag_are_postponed_and_moved_back(topic: Topic) -> None:
    ids = still_waiting(topic, HOUR_SECONDS, 2 * HOUR_SECONDS, tag="paid")
    (other,) = still_waiting(topic, HOUR_SECONDS, tag="refunded")
    before = times(topic, *ids, other)
    answer = changed(topic, "?tag=paid", postpone_seconds=600, dry_run=True)
    assert [(each["id"], each["changed"]) for each in answer["items"]] == [(id, True) for id in ids]
    assert times(topic, *ids, other) == before, "it only tells"
    assert changed(topic, "?tag=paid", postpone_seconds=600) == answer
    assert times(topic, *ids, other) == [*(each["deliver_at"] for each in answer["items"]), before[2]]
    changed(topic, postpone_seconds=-600, ids=[*ids, ids[0]])
    assert times(topic, *ids) == before[:2], "also where an id is named twice"


def test_each_is_taken_back_or_says_why_not(topic: Topic) -> None:
    first, second = still_waiting(topic, HOUR_SECONDS, HOUR_SECONDS)
    there = topic.produce("there")["id"]
    items = changed(topic, cancel=True, ids=[first, there, "nothing"])["items"]
    assert items[0] == {"id": first, "changed": True, "deliver_at": None}
    assert [each["error"]["code"] for each in items[1:]] == ["NOT_DELAYED", "MESSAGE_NOT_FOUND"]
    assert changed(topic, cancel=True, ids=[first])["items"][0]["changed"] is False, "it was"
    (again,) = changed(topic, postpone_seconds=1, ids=[first])["items"]
    assert again["error"]["code"] == "MESSAGE_CANCELLED"
    assert times(topic, first, second)[0] == "CANCELLED"


def test_a_prepared_message_waits_for_its_decision(topic: Topic) -> None:
    half = topic.api.post(f"{topic.path}/transactions", {"message": {"body": "half"}}).expect(201)
    message_id = half["message_id"]
    (item,) = changed(topic, postpone_seconds=60, ids=[message_id])["items"]
    assert item["error"]["code"] == "NOT_DELAYED"
    assert "transaction" in item["error"]["detail"]


@pytest.mark.parametrize(
    ("query", "body", "status", "code"),
    [
        ("", {}, 400, "VALIDATION"),
        ("", {"cancel": True, "postpone_seconds": 1}, 400, "VALIDATION"),
        ("", {"deliver_at": "soon"}, 400, "VALIDATION"),
        ("?tag=a", {"cancel": True, "ids": ["x"]}, 422, "CHOICE_AMBIGUOUS"),
        ("?key=", {"cancel": True}, 400, "VALIDATION"),
        ("?from=x", {"cancel": True}, 400, "VALIDATION"),
        ("?shard=99", {"cancel": True}, 422, "NO_SUCH_SHARD"),
    ],
)
def test_what_is_not_clear_changes_nothing(
    topic: Topic, query: str, body: Any, status: int, code: str
) -> None:
    (id,) = still_waiting(topic, HOUR_SECONDS)
    topic.api.call("PATCH", f"{topic.path}/messages{query}", body).refused(status, code)
    assert times(topic, id)[0] != "CANCELLED"
