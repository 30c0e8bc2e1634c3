"""Lists and changes of delayed messages: calls of the API on a store in memory."""

from __future__ import annotations

from collections import Counter

from chalicelib.api.fields import at
from chalicelib.domain.times import HOUR_MS, HOUR_SECONDS
from tests.support.clock import ManualClock
from tests.support.http import Client, Topic
from tests.unit.routes.calls import change, token


def test_what_is_due_is_counted_once_however_much_of_it_is_due_in_one_millisecond(
    api: Client, clock: ManualClock
) -> None:
    topic, due_ms = api.topic(shards=1), clock.now_ms() + HOUR_MS
    for first, step in ((0, 0), (0, 0), (0, 0), (1, 1), (HOUR_MS, 1)):
        topic.batch([{"body": n, "deliver_at": at(due_ms + first + n * step)} for n in range(100)])
    counts, query = Counter[str](), ""
    while True:
        due = api.get(f"{topic.path}/due{query}").expect(200)
        counts.update({hour["at"]: hour["delayed"] for hour in due["hours"]})
        if due["until"] is None:
            break
        assert due["until"] > query.removeprefix("?from="), "it goes on"
        query = f"?from={due['until']}"
    assert counts == {at(due_ms): 400, at(due_ms + HOUR_MS): 100}


def test_what_a_page_has_postponed_does_not_come_by_again_but_what_was_edited_does(
    topic: Topic,
) -> None:
    first, second = (topic.produce(n, delay_seconds=HOUR_SECONDS * (n + 1))["id"] for n in range(2))
    before = change(topic, ids=[first], postpone_seconds=60).expect(200)["items"]
    page = change(topic, "?limit=1", postpone_seconds=2 * HOUR_SECONDS).expect(200)
    assert [item["id"] for item in [*before, *page["items"]]] == [first, first], "that was another call's"
    topic.api.call("PATCH", f"{topic.path}/messages/{second}", {"body": "edited"}).expect(200)
    rest = change(
        topic, f"?limit=9&page_token={page['next_page_token']}", postpone_seconds=2 * HOUR_SECONDS
    ).expect(200)
    assert [item["id"] for item in rest["items"]] == [second]


def test_each_is_postponed_once_though_the_pages_are_read_by_clocks_that_differ(
    topic: Topic, clock: ManualClock
) -> None:
    ids = [topic.produce(n, delay_seconds=HOUR_SECONDS + n)["id"] for n in range(3)]
    changed: list[str] = []
    query = ""
    for _ in range(9):
        page = change(topic, f"?limit=1{query}", postpone_seconds=HOUR_SECONDS).expect(200)
        changed += [item["id"] for item in page["items"]]
        if "next_page_token" not in page:
            break
        query = f"&page_token={page['next_page_token']}"
        clock.advance(-1_000)
    assert changed == ids


def test_those_from_a_time_on_are_changed_and_nobody_is_brought_before_now(
    topic: Topic, clock: ManualClock
) -> None:
    soon, late_id = (
        topic.produce(n, delay_seconds=delay)["id"]
        for n, delay in enumerate((HOUR_SECONDS, 3 * HOUR_SECONDS))
    )
    since = at(clock.now_ms() + 2 * HOUR_SECONDS * 1000)
    assert [i["id"] for i in change(topic, f"?from={since}", cancel=True).expect(200)["items"]] == [late_id]
    (item,) = change(topic, ids=[soon], postpone_seconds=-2 * HOUR_SECONDS).expect(200)["items"]
    assert item["deliver_at"] == at(clock.now_ms())


def test_a_dry_run_changes_nothing_and_what_is_done_bears_its_name(api: Client, topic: Topic) -> None:
    ids = [topic.produce(n, delay_seconds=HOUR_SECONDS)["id"] for n in range(2)]
    mine = Topic(token(api, "planner", "admin"), topic.name)
    items = change(mine, cancel=True, dry_run=True).expect(200)["items"]
    assert [item["changed"] for item in items] == [True, True]
    messages = api.get(f"{topic.path}/messages?status=DELAYED").expect(200)["items"]
    assert sorted(each["id"] for each in messages) == sorted(ids)
    change(mine, ids=ids[:1], cancel=True).expect(200)
    change(mine, ids=ids[1:], postpone_seconds=60).expect(200)
    for id in ids:
        trace = api.get(f"{topic.path}/messages/{id}/trace").expect(200)["events"]
        assert "planner" in str(trace[-1]), trace


def test_of_very_many_all_are_listed_once_each(topic: Topic) -> None:
    ids = []
    for part in range(3):
        messages = [{"body": n, "delay_seconds": 1 + n % 97 + part} for n in range(300)]
        ids += [each["id"] for each in topic.batch(messages)]
    pages = topic.api.pages(f"{topic.path}/messages?status=DELAYED", 200)
    assert sorted(each["id"] for page in pages for each in page) == sorted(ids)


def test_those_of_a_tag_and_a_time_that_is_over(topic: Topic, clock: ManualClock) -> None:
    paid_id, _ = (topic.produce(tag, delay_seconds=HOUR_SECONDS, tag=tag)["id"] for tag in ("paid", "other"))
    (item,) = change(topic, "?tag=paid", deliver_at=at(clock.now_ms() - 60_000)).expect(200)["items"]
    assert (item["id"], item["deliver_at"]) == (paid_id, at(clock.now_ms()))


def test_what_is_delayed_is_changed_by_producers_and_those_of_all_groups(api: Client, topic: Topic) -> None:
    id = topic.produce("x", delay_seconds=HOUR_SECONDS)["id"]
    mailer = Topic(token(api, "mailer", "admin", groups=["mail"]), topic.name)
    one = f"{topic.path}/messages/{id}"
    change(mailer, cancel=True).refused(403, "GROUP_FORBIDDEN")
    mailer.api.call("PATCH", one, {"body": 1}).refused(403, "GROUP_FORBIDDEN")
    mailer.api.delete(one).refused(403, "GROUP_FORBIDDEN")
    producer = token(api, "shop", "produce", groups=["mail"])
    producer.call("PATCH", one, {"body": 1}).expect(200)
    producer.delete(one).expect(204)
