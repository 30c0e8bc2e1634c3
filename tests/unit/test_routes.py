"""Calls of the API on a store in memory, with a clock that stands still: bounds, pages, and what is kept apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

import app
from chalicelib import wiring
from chalicelib.adapters import memory_adapters
from chalicelib.api.responses.common import at
from chalicelib.domain.limits import (
    MAX_BATCH_BYTES,
    MAX_DEDUP_ID_CHARS,
    MAX_DELAY_SECONDS,
    MAX_KEY_CHARS,
)
from chalicelib.domain.times import HOUR_MS, HOUR_SECONDS
from chalicelib.wiring import Deps
from local.gateway import Gateway
from tests.support.clock import Hasty, ManualClock, SeededRandom
from tests.support.dead_letters import bury
from tests.support.http import Client, Group, Reply, Topic
from tests.support.inline import Inline
from tests.support.push import Inbox, Subscribers
from tests.support.troubled import Troubled

DAY = {"from": "2030-01-01T00:00:00.000Z", "to": "2030-01-02T00:00:00.000Z"}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def inbox() -> Inbox:
    """What was woken."""
    return Inbox()


@dataclass
class StartedJobs:
    """ports.Jobs, where each job can be started."""

    started: list[str] = field(default_factory=list)

    def start(self, job: str, arguments: Mapping[str, str]) -> bool:
        self.started.append(job)
        return True


@pytest.fixture
def jobs() -> StartedJobs:
    return StartedJobs()


@pytest.fixture
def deps(clock: ManualClock, inbox: Inbox, jobs: StartedJobs, monkeypatch: pytest.MonkeyPatch) -> Deps:
    adapters = memory_adapters(
        clock, SeededRandom(), lambda: Subscribers(clock), inbox, lambda: Inline(), jobs
    )
    deps = Deps(adapters)
    monkeypatch.setattr(wiring, "deps", lambda: deps)
    return deps


@pytest.fixture
def api(deps: Deps) -> Client:
    """A client with an admin token."""
    return Client(Gateway(app.app), deps.tokens.ensure_admin(None))


@pytest.fixture
def topic(api: Client) -> Topic:
    return api.topic()


def token(api: Client, name: str, *scopes: str, **limits: Any) -> Client:
    token = api.post("/v1/tokens", {"name": name, "scopes": list(scopes), **limits}).expect(201)
    return api.with_token(token["token"])


def change(topic: Topic, query: str = "", **body: Any) -> Reply:
    """Change what is delayed."""
    return topic.api.call("PATCH", f"{topic.path}/messages{query}", body)


def dead_letters(group: Group, count: int) -> list[str]:
    """Ids of messages that were buried."""
    ids = [group.topic.produce(n)["id"] for n in range(count)]
    group.nack(*group.receive(count), dead_letter=True)
    return ids


def test_a_page_of_one_selection_is_not_continued_with_another(topic: Topic) -> None:
    for tag in ("a", "a", "b", "b"):
        topic.produce(tag, delay_seconds=HOUR_SECONDS, tag=tag)
    page = change(topic, "?tag=a&limit=1", cancel=True).expect(200)
    token_query = f"&page_token={page['next_page_token']}"
    change(topic, f"?tag=b&limit=1{token_query}", cancel=True).refused(400)
    other = topic.api.topic()
    change(other, f"?tag=a&limit=1{token_query}", cancel=True).refused(400)
    assert len(change(topic, f"?tag=a&limit=1{token_query}", cancel=True).expect(200)["items"]) == 1


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


@pytest.mark.parametrize(("more", "is_taken"), [(0, True), (1, False)])
def test_a_message_may_wait_for_so_long_and_no_longer(topic: Topic, more: int, is_taken: bool) -> None:
    id = topic.produce("x", delay_seconds=HOUR_SECONDS)["id"]
    (item,) = change(topic, ids=[id], postpone_seconds=MAX_DELAY_SECONDS - HOUR_SECONDS + more).expect(200)[
        "items"
    ]
    assert item.get("changed", False) is is_taken
    assert is_taken or item["error"]["code"] == "DELAY_TOO_LONG"


@pytest.mark.parametrize(
    "look",
    [
        lambda topic, key: topic.api.get(f"{topic.path}/messages?key={key}"),
        lambda topic, key: change(topic, f"?key={key}", cancel=True),
    ],
)
def test_a_key_is_asked_for_up_to_its_longest(topic: Topic, look: Callable[[Topic, str], Reply]) -> None:
    look(topic, "k" * MAX_KEY_CHARS).expect(200)
    look(topic, "k" * (MAX_KEY_CHARS + 1)).refused(400)


def test_a_dedup_id_stands_for_its_message_until_its_window_ends(topic: Topic, clock: ManualClock) -> None:
    short = topic.api.topic(dedup_window_seconds=60)
    id = short.produce("x", dedup_id="d")["id"]
    path = f"{short.path}/messages?dedup_id=d"
    clock.advance(59_999)
    assert [each["id"] for each in short.api.get(path).expect(200)["items"]] == [id]
    clock.advance(1)
    assert short.api.get(path).expect(200)["items"] == []
    assert short.produce("y", dedup_id="d")["id"] != id, "the id is free, too"
    short.api.get(f"{path}&limit=0").refused(400)


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


def test_prepared_messages_from_a_time_on(topic: Topic, clock: ManualClock) -> None:
    path = f"{topic.path}/transactions"
    topic.api.post(path, {"message": {"body": 1}}).expect(201)
    clock.advance(60_000)
    late_id = topic.api.post(path, {"message": {"body": 2}}).expect(201)["message_id"]
    query = f"status=PREPARED&from={at(clock.now_ms() - 1)}"
    messages = topic.api.get(f"{topic.path}/messages?{query}").expect(200)["items"]
    assert [each["id"] for each in messages] == [late_id]


def test_what_was_done_to_a_message_bears_the_name_of_who_did_it(api: Client, topic: Topic) -> None:
    group = topic.group()
    desk = Topic(token(api, "desk", "produce", "admin"), topic.name)
    letters = f"{topic.path}/groups/g/dead-letters"

    def deed() -> Any:
        return api.get(f"{topic.path}/messages/{id}/trace").expect(200)["events"]

    id = desk.produce({"n": 1})["id"]
    assert "desk" in str(deed()[0])
    desk.api.call("PATCH", f"{topic.path}/messages/{id}", {"body": {"n": 2}}).expect(200)
    assert "desk" in str(deed()[-1])
    group.nack(*group.receive(), dead_letter=True)
    desk.api.call("PATCH", letters, {"patch": {"n": 3}, "ids": [id]}).expect(200)
    assert "desk" in str(deed()[-1])
    desk.api.post(f"{topic.path}/messages/{id}/retry", {"group": "g"}).expect(200)
    assert "desk" in str(deed()[-1])


def test_a_letter_whose_body_is_gone_is_left_as_it_is(api: Client, deps: Deps) -> None:
    group = api.topic(shards=1).group()
    group.topic.produce("x" * 250_000)
    group.nack(*group.receive(), dead_letter=True)
    for name in deps.adapters.blobs.names("", "", 10):
        deps.adapters.blobs.delete(name)
    (item,) = api.call("PATCH", f"{group.path}/dead-letters", {"patch": {"n": 1}}).expect(200)["items"]
    assert item["error"]["code"] == "NO_JSON"


def test_who_may_use_one_group_is_told_of_no_other(api: Client) -> None:
    topic = api.topic()
    topic.group("mail")
    id = topic.produce("x")["id"]
    topic.group("bank", **{"from": "latest"})
    mailer = token(api, "mailer", "consume", groups=["mail"])
    fate = mailer.get(f"{topic.path}/messages/{id}/fate").expect(200)
    assert (list(fate["groups"]), fate["skipped"]) == (["mail"], [])
    assert api.get(f"{topic.path}/messages/{id}/fate").expect(200)["skipped"] == ["bank"]


def test_who_is_called_hears_that_its_group_was_sought_back_or_divided_anew(
    topic: Topic, inbox: Inbox, clock: ManualClock
) -> None:
    group = topic.group()
    subscriber = {"url": "https://hooks.example.com/mail"}
    topic.api.put(f"{group.path}/consumers/mail", subscriber).expect(201)
    inbox.asked.clear()
    topic.api.post(f"{group.path}/seek", {"to": "earliest"}).expect(200)
    assert "deliver" in [function for function, _ in inbox.asked]
    for setting in ({"max_in_flight": 7}, {"batch_size": 7}):
        clock.advance(60_000)
        inbox.asked.clear()
        topic.api.put(group.path, setting).expect(200)
        assert "mover" in [function for function, _ in inbox.asked], setting


def test_all_consumers_of_a_broadcast_are_sought_back(api: Client) -> None:
    topic = api.topic(shards=1)
    group = topic.group(mode="broadcast")
    for name in ("a", "b"):
        group.register(name)
    topic.produce("x")
    for name in ("a", "b"):
        group.ack(*group.receive(consumer=name))
    api.post(f"{group.path}/seek", {"to": "earliest"}).expect(200)
    assert [group.bodies(consumer=name) for name in ("a", "b")] == [["x"], ["x"]]


def test_a_topic_that_wakes_at_once_starts_a_delivery_with_the_answer(api: Client, inbox: Inbox) -> None:
    topic = api.topic(wake="direct")
    topic.api.put(f"{topic.group().path}/consumers/mail", {"url": "https://hooks.example.com"}).expect(201)
    inbox.asked.clear()
    topic.produce("x")
    assert [function for function, _ in inbox.asked] == ["deliver"]


@pytest.mark.parametrize(("port", "call"), [("control", "groups"), ("cursors", "get")])
def test_a_duplicate_is_answered_though_nobody_can_say_what_became_of_it(
    deps: Deps, topic: Topic, monkeypatch: pytest.MonkeyPatch, port: str, call: str
) -> None:
    """A batch that was refused for it would be sent again, and what it stored be there twice."""
    topic.group()
    message = {"body": "x", "dedup_id": "d"}
    first = topic.produce(**message)
    troubled = Troubled(getattr(deps.adapters, port), lambda name, *_: name == call)
    changes: dict[str, Any] = {port: troubled}
    process = Deps(replace(deps.adapters, **changes))
    monkeypatch.setattr(wiring, "deps", lambda: process)
    assert topic.api.post(f"{topic.path}/messages", message).expect(200) == {**first, "duplicate": True}
    twin, new = topic.batch([message, {"body": "y"}])
    assert (twin["id"], twin["duplicate"], new["duplicate"]) == (first["id"], True, False)
    assert troubled.refused
    monkeypatch.setattr(wiring, "deps", lambda: deps)
    assert topic.accepted == 2


@pytest.mark.parametrize(("port", "call"), [("control", "assignment"), ("timers", "store")])
def test_a_new_secret_is_shown_though_what_follows_its_storing_fails(
    deps: Deps, topic: Topic, monkeypatch: pytest.MonkeyPatch, port: str, call: str
) -> None:
    """Repeating the call shows it no more."""
    group = topic.group()
    troubled = Troubled(getattr(deps.adapters, port), lambda name, *_: name == call)
    changes: dict[str, Any] = {port: troubled}
    process = Deps(replace(deps.adapters, **changes))
    monkeypatch.setattr(wiring, "deps", lambda: process)
    body = {"url": "https://hooks.example.com"}
    view = topic.api.put(f"{group.path}/consumers/mail", body).expect(201)
    assert view["secret"].startswith("whsec_")
    assert troubled.refused
    monkeypatch.setattr(wiring, "deps", lambda: deps)
    assert "secret" not in topic.api.put(f"{group.path}/consumers/mail", body).expect(200)


def test_the_bytes_of_an_event_without_a_type_have_the_usual_one(topic: Topic) -> None:
    event = {"specversion": "1.0", "type": "t", "source": "s", "id": "1", "data_base64": "AAE="}
    media = {"Content-Type": "application/cloudevents+json"}
    path = f"/v1/publish/{topic.name}"
    id = topic.api.call("POST", path, event, headers=media).expect(201)["id"]
    view = topic.api.get(f"{topic.path}/messages/{id}").expect(200)
    assert view["content_type"] == "application/octet-stream"


def test_what_bears_a_dedup_id_is_the_same_only_with_the_same_content(topic: Topic) -> None:
    def publish(media: str, trace: str) -> Reply:
        return topic.publish(
            b"{}", headrace_dedup_id="d", content_type=media, headrace_forward_traceparent=trace
        )

    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333{}-01"
    publish("application/json", trace.format(1)).expect(201)
    assert publish("application/json", trace.format(2)).expect(200)["duplicate"] is True
    publish("text/plain", trace.format(1)).refused(409, "DEDUP_MISMATCH")


def test_the_window_of_what_waits_begins_when_it_is_due(api: Client, clock: ManualClock) -> None:
    topic = api.topic(dedup_window_seconds=60)
    message = {"body": "x", "dedup_id": "d", "delay_seconds": HOUR_SECONDS}
    first = topic.api.post(f"{topic.path}/messages", message).expect(201)["id"]
    clock.advance((HOUR_SECONDS + 59) * 1000)
    again = {**message, "delay_seconds": 0}
    assert api.post(f"{topic.path}/messages", again).expect(200)["id"] == first


def test_of_the_named_letters_so_many_are_sent_again(topic: Topic) -> None:
    group = topic.group()
    ids = dead_letters(group, 3)
    body = {"ids": ids, "limit": 2}
    assert topic.api.post(f"{group.path}/dead-letters/redrive", body).expect(200) == {"redriven": 2}


def test_the_last_page_of_groups_says_so(topic: Topic) -> None:
    for name in ("a", "b"):
        topic.group(name)
    assert topic.api.get(f"{topic.path}/groups?limit=2").expect(200).get("next_page_token") is None


def test_a_page_of_groups_that_takes_long_to_count_ends_early_and_the_next_goes_on(
    topic: Topic, deps: Deps, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"g{n:02}" for n in range(12)]
    for name in names:
        topic.group(name)
    slow = Deps(replace(deps.adapters, clock=Hasty()))
    monkeypatch.setattr(wiring, "deps", lambda: slow)
    pages, query = list[list[str]](), ""
    while not pages or query:
        page = topic.api.get(f"{topic.path}/groups{query}").expect(200)
        pages.append([group["group"] for group in page["items"] if "backlog" in group])
        query = f"?page_token={page['next_page_token']}" if "next_page_token" in page else ""
    assert [name for page in pages for name in page] == names
    assert 1 < len(pages) < 12


def test_a_redrive_that_takes_long_is_gone_on_with_by_its_token_and_no_other(
    topic: Topic, deps: Deps, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = topic.group()
    for _ in range(3):
        topic.batch([{"body": n, "tag": "t"} for n in range(70)])
        bury(group)
    slow = Deps(replace(deps.adapters, clock=Hasty()))
    monkeypatch.setattr(wiring, "deps", lambda: slow)
    path = f"{group.path}/dead-letters/redrive"
    first = topic.api.post(path, {"filter": {"tag": "t"}}).expect(200)
    token = first["next_page_token"]
    for other in ({}, {"filter": {"tag": "u"}}, {"filter": {"tag": "t", "reason": "REJECTED"}}):
        topic.api.post(path, {**other, "page_token": token}).refused(400, "PAGE_TOKEN_INVALID")
    topic.api.post(path, {"ids": ["m"], "page_token": token}).refused(422, "REDRIVE_AMBIGUOUS")
    counts, answer = [first["redriven"]], first
    while "next_page_token" in answer:
        more = {"filter": {"tag": "t"}, "page_token": answer["next_page_token"]}
        counts.append((answer := topic.api.post(path, more).expect(200))["redriven"])
    assert sum(counts) == 210


def test_a_group_keeps_of_its_topics_retries_what_it_does_not_change(api: Client) -> None:
    topic = api.topic(retry={"max_attempts": 7})
    topic.group(retry={"base_seconds": 3})
    assert api.get(f"{topic.path}/groups/g").expect(200)["retry"]["max_attempts"] == 7


def test_events_whose_names_could_be_read_alike_are_two(topic: Topic) -> None:
    long = "x" * MAX_DEDUP_ID_CHARS
    names = [("a", f"b|{long}"), ("a|b", long), ("a", "b|c"), ("a|b", "c")]
    for source, id in names:
        event = {"ce_specversion": "1.0", "ce_type": "t", "ce_source": source, "ce_id": id}
        assert topic.publish(b"x", **event).expect(201)["id"]
        assert topic.publish(b"x", **event).expect(200)["duplicate"] is True
    assert topic.accepted == len(names)


def test_an_event_is_known_by_the_dedup_id_that_its_sender_names(topic: Topic) -> None:
    event = {"ce_specversion": "1.0", "ce_type": "t", "ce_source": "s", "ce_id": "1"}
    topic.publish(b"x", headrace_dedup_id="mine", **event).expect(201)
    topic.publish(b"x", **{**event, "ce_id": "2"}, headrace_dedup_id="mine").refused(409, "DEDUP_MISMATCH")
    messages = topic.api.get(f"{topic.path}/messages?dedup_id=mine").expect(200)["items"]
    assert len(messages) == 1


@pytest.mark.parametrize("delay", ["9" * 5000, "-1", "1.5", "\u0661", ""])
def test_a_delay_in_a_header_that_is_no_number_is_said_so(topic: Topic, delay: str) -> None:
    topic.publish(b"x", headrace_delay_seconds=delay).refused(400)


def test_a_batch_may_have_just_so_many_bytes(topic: Topic) -> None:
    text = b'{"messages": [{"body": 1}]}'
    path = f"{topic.path}/messages/batch"
    whole = text.ljust(MAX_BATCH_BYTES)
    headers = {"Content-Type": "application/json"}
    topic.api.call("POST", path, raw=whole, headers=headers).expect(200)
    topic.api.call("POST", path, raw=whole + b" ", headers=headers).refused(413, "BATCH_TOO_LARGE")


def test_a_replay_for_one_group_is_for_those_who_may_use_it(api: Client) -> None:
    source, into = api.topic(), api.topic()
    for topic in (source, into):
        topic.group("mail")
        topic.group("bank")
    path = f"{source.path}/replays"
    mailer = token(api, "mailer", "admin", groups=["mail"])
    mailer.post(path, {**DAY, "group": "bank"}).refused(403, "GROUP_FORBIDDEN")
    mailer.post(path, DAY).refused(403, "GROUP_FORBIDDEN")
    mine = mailer.post(path, {**DAY, "group": "mail"}).expect(202)["replay_id"]
    others = [api.post(path, {**DAY, **of}).expect(202)["replay_id"] for of in ({}, {"group": "bank"})]
    mailer.get(f"/v1/replays/{mine}").expect(200)
    for other in others:
        mailer.get(f"/v1/replays/{other}").refused(404)
    assert [each["replay_id"] for each in mailer.get(path).expect(200)["items"]] == [mine]
    both = api.post(path, {**DAY, "into": into.name}).expect(202)["replay_id"]
    for topics in ([source.name], [into.name]):
        stranger = token(api, "stranger", "admin", topics=topics)
        stranger.post(path, {**DAY, "into": into.name}).refused(403, "TOPIC_FORBIDDEN")
        stranger.get(f"/v1/replays/{both}").refused(404)


def test_a_replay_whose_job_shall_not_start_waits_for_it(topic: Topic, jobs: StartedJobs) -> None:
    path = f"{topic.path}/replays"
    assert topic.api.post(path, {**DAY, "start": False}).expect(202)["started"] is False
    assert jobs.started == []
    assert topic.api.post(path, DAY).expect(202)["started"] is True
    assert jobs.started == ["replay"]


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
