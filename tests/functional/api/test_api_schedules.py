"""Schedules over HTTP: put, previewed, fired, paused, run by hand, deleted; and who may do so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from chalicelib.wiring import Deps
from tests.support.background import Background
from tests.support.damage import change_control, having
from tests.support.http import Client, Reply, Topic
from tests.support.roles import at_work

DAILY: dict[str, Any] = {"cron": "0 9 * * *", "timezone": "Europe/Berlin"}


def put(topic: Topic, name: str, **fields: Any) -> Reply:
    timing = fields if "every_seconds" in fields else {**DAILY, **fields}
    return topic.api.put(f"/v1/schedules/{name}", {"topic": topic.name, "message": {"body": name}, **timing})


def schedule(topic: Topic, name: str) -> Any:
    return topic.api.get(f"/v1/schedules/{name}").expect(200)


def seconds_to(background: Background, time: str) -> float:
    return datetime.fromisoformat(time).timestamp() - background.clock.now_ms() / 1000


def fire(background: Background, topic: Topic, name: str) -> str:
    """Let the next time come; it."""
    [at, *_] = schedule(topic, name)["next"]
    background.pass_time(seconds_to(background, at))
    return str(at)


def test_a_schedule_is_replaced_fires_at_its_times_and_shows_what_it_has_sent(
    api: Client, background: Background
) -> None:
    topic = api.topic()
    group = topic.group()
    message = {
        "body": {"n": 1.50},
        "keys": ["k"],
        "tag": "t",
        "headers": {"x-a": "b"},
        "expires_in_seconds": 604_800,
    }
    first = put(topic, "report", message={"body": 0}, app="reports").expect(201)
    assert put(topic, "report", message={"body": 0}, app="reports").expect(200) == first
    [listed] = api.get("/v1/schedules?app=reports&limit=1").expect(200)["items"]
    assert (listed["name"], api.get("/v1/schedules?app=other").expect(200)["items"]) == ("report", [])
    view = put(topic, "report", message={**message, "retry": {"max_attempts": 2}}, missed="all").expect(200)
    assert view["message"] == {**message, "retry": {"max_attempts": 2}}
    assert (view["missed"], view["overlap"], view["app"], view["created_at"]) == (
        *("all", "allow", None),
        first["created_at"],
    )
    times = [fire(background, topic, "report") for _ in range(2)]
    assert view["next"][:2] == times
    received = group.receive()
    assert [(m["schedule"], m["scheduled_at"], m["body"], m["keys"]) for m in received] == [
        ("report", at, {"n": 1.5}, ["k"]) for at in times
    ]
    ids = [m["id"] for m in received]
    ids.append(api.post("/v1/schedules/report/run").expect(201)["id"])
    shown = schedule(topic, "report")
    assert [each["message_id"] for each in shown["last"]] == ids[::-1]
    assert [each["at"] for each in shown["last"]][1:] == times[::-1]
    assert {name: shown[name] for name in view if name != "next"} == {
        name: view[name] for name in view if name != "next"
    }
    trace = api.get(f"{topic.path}/messages/{ids[0]}/trace").expect(200)["events"]
    assert (trace[0]["detail"], trace[0]["by"]["id"]) == ("schedule report", view["made_by"])
    api.delete("/v1/schedules/report").expect(204)
    api.get("/v1/schedules/report").refused(404, "SCHEDULE_NOT_FOUND")
    background.pass_time(3 * 86_400)
    assert topic.accepted == 3


def test_a_paused_schedule_sends_nothing_and_goes_on_with_its_next_time(
    api: Client, background: Background
) -> None:
    topic = api.topic()
    put(topic, "p", paused=True).expect(201)
    assert schedule(topic, "p")["next"] == []
    background.pass_time(2 * 86_400)
    assert api.post("/v1/schedules/p/resume").expect(200)["paused"] is False
    fire(background, topic, "p")
    assert api.post("/v1/schedules/p/pause").expect(200)["next"] == []
    background.pass_time(2 * 86_400)
    assert topic.accepted == 1
    assert len(schedule(topic, "p")["last"]) == 1


@pytest.mark.parametrize(("missed", "sent"), [("skip", 2), ("one", 3), ("all", 6)])
def test_what_was_missed_is_sent_as_the_schedule_says(
    api: Client, background: Background, missed: str, sent: int
) -> None:
    topic = api.topic()
    put(topic, "m", every_seconds=100, missed=missed).expect(201)
    background.clock.advance(600)
    for _ in range(7):
        background.move()
    assert topic.accepted == sent
    times = [each["at"] for each in schedule(topic, "m")["last"]]
    assert len(times) == len(set(times)) == sent
    api.delete("/v1/schedules/m").expect(204)


def test_missed_times_are_told_once(api: Client, background: Background) -> None:
    topic, events = api.topic(), api.topic()
    group = events.group()
    api.put("/v1/events", {"topic": events.name, "types": ["headrace.schedule.missed"]}).expect(200)
    put(topic, "late", every_seconds=100, missed="all").expect(201)
    background.pass_time(100)
    background.clock.advance(500)
    for _ in range(7):
        background.move()
    events_of = [message["headers"] for message in group.receive(100)]  # also of others' schedules
    [headers] = [each for each in events_of if each["ce-subject"] == "late"]
    assert headers["ce-type"] == "headrace.schedule.missed"
    api.delete("/v1/events").expect(204)
    api.delete("/v1/schedules/late").expect(204)


def test_a_schedule_waits_until_the_budget_of_its_topic_allows_it(
    api: Client, background: Background
) -> None:
    topic = api.topic(budget_usd=0.5, on_budget="refuse")
    put(topic, "b", every_seconds=100).expect(201)
    background.spend(topic, 0.5)
    for _ in range(2):
        background.pass_time(100)
    assert topic.accepted == 0
    api.put(topic.path, {"budget_usd": None}).expect(200)
    background.pass_time(100)
    assert topic.accepted >= 1
    api.delete("/v1/schedules/b").expect(204)


def sent_each_second(background: Background, topics: list[Topic], seconds: int, posts: int = 0) -> list[int]:
    """How many messages came in each of so many seconds, while producers send, too."""
    counts = [sum(topic.accepted for topic in topics)]
    for _ in range(seconds):
        background.move()
        for topic in topics * posts:
            topic.api.post(f"{topic.path}/messages", {"body": 1})
        counts.append(sum(topic.accepted for topic in topics))
        background.clock.advance(1)
    return [after - before for before, after in pairwise(counts)]


def test_firings_over_the_rate_of_their_topic_wait_unwritten(api: Client, background: Background) -> None:
    topic = api.topic(rate_limit=2)
    begin = datetime.fromtimestamp(background.clock.now_ms() // 1000 + 5, UTC).isoformat()
    for n in range(7):
        put(topic, f"r{n}", every_seconds=86_400, **{"from": begin}).expect(201)
    background.clock.advance(5)
    with background.clock.stopped():
        for _ in range(9):  # other tests' schedules catch up
            background.move()
        assert topic.accepted == 2
        with background.deps.adapters.units() as units:
            background.deps.mover.run_once()
        assert (topic.accepted, units.writes) == (2, 0)
    assert max(sent_each_second(background, [topic], 6, posts=9)) <= 4, "and producers leave them their turn"
    for n in range(7):
        [last] = schedule(topic, f"r{n}")["last"]
        assert datetime.fromisoformat(last["at"]) == datetime.fromisoformat(begin)
        api.delete(f"/v1/schedules/r{n}").expect(204)


def test_missed_times_are_made_up_for_at_the_rates_of_the_stage(api: Client, background: Background) -> None:
    topics = [api.topic(), api.topic()]
    for n in range(4):
        put(topics[n % 2], f"m{n}", every_seconds=60, missed="all").expect(201)
    background.clock.advance(420)
    adapters = replace(background.deps.adapters, firings=(1, 2))
    counts = sent_each_second(replace(background, deps=Deps(adapters)), topics, 20)
    assert max(counts) <= 3
    for n in range(4):
        times = {each["at"] for each in schedule(topics[0], f"m{n}")["last"]}
        assert len(times) == sum(counts) / 4 == 7
        api.delete(f"/v1/schedules/m{n}").expect(204)


def test_one_without_overlap_waits_until_its_last_message_is_done(
    api: Client, background: Background
) -> None:
    topic = api.topic()
    group = topic.group()
    put(topic, "o", every_seconds=60, overlap="skip").expect(201)
    for _ in range(3):
        background.pass_time(60)
    [message] = group.receive()
    group.settle("ack", [message])
    background.pass_time(60)
    assert topic.accepted == 2
    api.delete("/v1/schedules/o").expect(204)


def test_a_schedule_whose_topic_is_deleted_stops_and_waits_for_a_person(
    api: Client, background: Background
) -> None:
    topic = api.topic()
    put(topic, "orphan").expect(201)
    api.delete(f"{topic.path}?confirm={topic.name}").expect(204)
    background.pass_time(86_400)
    state = {"kind": "SCHEDULE_STOPPED", "consumer": "orphan"}
    assert _attention(api, state)
    api.put(topic.path).expect(201)
    background.pass_time(86_400)
    assert topic.accepted == 0
    put(topic, "orphan").expect(200)
    assert not _attention(api, state)
    background.pass_time(86_400)
    assert topic.accepted == 1
    api.delete("/v1/schedules/orphan").expect(204)


def _attention(api: Client, state: dict[str, str]) -> list[Any]:
    items = api.get("/v1/attention?limit=200").expect(200)["items"]
    return [item for item in items if item.items() >= state.items()]


@pytest.mark.parametrize(
    ("fields", "code", "path"),
    [
        ({"cron": "0 25 * * *"}, "INVALID_CRON", "cron"),
        ({"cron": "0 0 30 2 *"}, "INVALID_CRON", "cron"),
        ({"cron": "0 0 0 * * *"}, "INVALID_CRON", "cron"),
        ({"cron": "@reboot"}, "INVALID_CRON", "cron"),
        ({"cron": "* * * * *", "every_seconds": 5}, "VALIDATION", "cron"),
        ({}, "VALIDATION", "cron"),
        ({"cron": "@daily", "timezone": "Europe/Atlantis"}, "VALIDATION", "timezone"),
        ({"cron": "@daily", "timezone": "Europe"}, "VALIDATION", "timezone"),
        ({"every_seconds": 60, "jitter_seconds": 60}, "VALIDATION", "jitter_seconds"),
        ({"every_seconds": 60, "from": "tomorrow"}, "VALIDATION", "from"),
    ],
)
def test_times_that_there_are_not_are_refused(api: Client, fields: Any, code: str, path: str) -> None:
    problem = api.post("/v1/schedules/preview", fields).refused(400, code)
    assert [issue["path"] for issue in problem["errors"]] == [path]


def test_a_preview_stores_nothing(api: Client) -> None:
    times = api.post("/v1/schedules/preview", {"cron": "30 8 * * mon-fri"}).expect(200)["next"]
    moments = [datetime.fromisoformat(at) for at in times]
    assert len(moments) == 10
    assert all(m.weekday() < 5 and (m.hour, m.minute, m.tzinfo) == (8, 30, UTC) for m in moments)
    until = {"every_seconds": 60, "from": "2199-01-01T00:00:00Z", "until": "2199-01-01T00:01:00Z"}
    api.post("/v1/schedules/preview", until).refused(422, "DELAY_TOO_LONG")


@pytest.mark.parametrize("field", ["delay_seconds", "deliver_at", "sent_at", "dedup_id"])
def test_a_message_of_a_schedule_has_no_time_of_its_own(api: Client, field: str) -> None:
    value: Any = 5 if field == "delay_seconds" else "2100-01-01T00:00:00Z"
    problem = put(api.topic(), "x", message={"body": 1, field: value}).refused(400, "VALIDATION")
    assert problem["errors"][0]["path"] == f"message.{field}"


def test_the_schedules_of_a_topic_fire_a_hundred_times_a_second_at_most(empty_api: Client) -> None:
    topic = empty_api.topic()
    for n in range(100):
        put(topic, f"s{n:03}", every_seconds=1).expect(201)
    put(topic, "s100", every_seconds=2).refused(422, "TOO_MANY_FIRINGS")
    put(topic, "s000", every_seconds=2).expect(200)
    put(topic, "s100", every_seconds=2).expect(201)
    put(topic, "hourly", every_seconds=3_600).expect(201)
    assert [len(page) for page in empty_api.pages("/v1/schedules", 100)] == [100, 2]


def test_who_may_not_use_the_topic_of_a_schedule_neither_sees_nor_changes_it(api: Client) -> None:
    topic, other = api.topic(), api.topic()
    put(topic, "theirs").expect(201)
    token = api.new_token("produce", topics=[other.name])["token"]
    mine = Topic(api.with_token(token), other.name)
    calls: list[Callable[[], Reply]] = [
        lambda: put(mine, "theirs"),
        lambda: mine.api.get("/v1/schedules/theirs"),
        lambda: mine.api.delete("/v1/schedules/theirs"),
        lambda: mine.api.post("/v1/schedules/theirs/pause"),
        lambda: mine.api.post("/v1/schedules/theirs/run"),
        lambda: put(Topic(mine.api, topic.name), "mine"),
    ]
    for call in calls:
        call().refused(403, "TOPIC_FORBIDDEN")
    put(mine, "mine").expect(201)
    assert [each["name"] for each in mine.api.get("/v1/schedules").expect(200)["items"]] == ["mine"]
    assert schedule(topic, "theirs")["topic"] == topic.name


def test_a_schedule_does_not_outlive_the_rights_of_its_token(api: Client) -> None:
    topic = api.topic()
    limited = Topic(api.with_token(api.new_token("produce", rate_limit=100)["token"]), topic.name)
    put(limited, "x").refused(403, "TOO_MUCH")
    ending = api.new_token("produce", expires_in_days=10)
    own = Topic(api.with_token(ending["token"]), topic.name)
    put(own, "x").refused(403, "TOO_MUCH")
    put(own, "x", until=ending["expires_at"]).expect(201)


def test_what_a_leaked_token_has_made_is_listed_and_stopped_with_it(api: Client) -> None:
    topic = api.topic()
    group = topic.group()
    leaked = api.new_token("produce", "consume")
    own = Topic(api.with_token(leaked["token"]), topic.name)
    put(own, "left").expect(201)
    own.api.put(f"{group.path}/consumers/sink", {"function": "ship"}).expect(201)
    path = f"/v1/tokens/{leaked['id']}"
    made = {
        "schedules": ["left"],
        "consumers": [f"{topic.name}/{group.name}/sink"],
    }
    assert api.get(f"{path}/made").expect(200) == made
    api.delete(path).expect(204)
    assert api.get(f"{path}/made").expect(200) == made
    api.delete(f"{path}?stop=true").expect(204)
    assert schedule(topic, "left")["paused"]
    assert api.get(f"{path}/made").expect(200)["consumers"] == []
    api.delete(path).refused(404, "TOKEN_NOT_FOUND")


def test_a_lost_timer_is_stored_again(api: Client, background: Background) -> None:
    topic = api.topic()
    put(topic, "lost").expect(201)
    timers, schedules = background.deps.adapters.timers, background.deps.schedules
    row = schedules.find("lost", lambda name: None)
    timer = schedules.timer_of(row)
    assert timer
    timers.drop([timer])
    with at_work("expire"):
        schedules.restore()
    restored = schedules.timer_of(row)
    assert restored
    assert (restored.due_ms, restored.draft) == (timer.due_ms, timer.draft)


def test_a_schedule_that_cannot_be_read_holds_up_no_other(api: Client, background: Background) -> None:
    topic = api.topic()
    for name in ("damaged", "whole"):
        put(topic, name, every_seconds=60).expect(201)
    change_control(background.deps, "schedules", "damaged", having("version", {"S": "?"}))
    background.pass_time(60)
    assert len(schedule(topic, "whole")["last"]) == topic.accepted == 1
    change_control(background.deps, "schedules", "damaged", having("version", {"N": "1"}))
    background.move()
    assert len(schedule(topic, "damaged")["last"]) == 1
    for name in ("damaged", "whole"):
        api.delete(f"/v1/schedules/{name}").expect(204)
