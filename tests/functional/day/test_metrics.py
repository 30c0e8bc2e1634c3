"""A stage's metrics and log lines; the dashboard and the alarms use nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chalicelib import observe
from chalicelib.domain.segment import ShardKey
from infra import names
from infra.alarms import all_alarms
from infra.dashboard import dashboard
from tests.functional.day.conftest import STAGE, Day, Told, log_to_stdout, pushed
from tests.functional.delivery.receivers import Receiver
from tests.support.damage import change_control, having
from tests.support.day import World, a_world
from tests.support.roles import Guard

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
NAMED = re.compile(r"SEARCH\('\{([\w/]+),([\w,]+)\} \w+=\"([\w-]+)\" MetricName=\"(\w+)\"'")


@pytest.fixture
def logs(capsys: pytest.CaptureFixture[str]) -> Told:
    log_to_stdout()
    return Told(lambda: capsys.readouterr().out)


@pytest.fixture
def world(engine: str, tmp_path: Path) -> Iterator[World]:
    with a_world(Guard(), tmp_path) as world:
        world.adapters = replace(world.adapters, stage=STAGE, on_skip=partial(observe.unreadable, STAGE))
        yield world


def asked_for() -> Iterator[tuple[str, str, frozenset[str], str]]:
    """Every metric that the dashboard or an alarm names: namespace, name, its dimensions' names, the value of the
    first."""
    for alarm in all_alarms(STAGE, names.FUNCTIONS):
        namespace, name, dimensions = alarm.metric
        yield namespace, name, frozenset(dimensions), next(iter(dimensions.values()))
    for widget in dashboard(STAGE, "bucket")["widgets"]:
        for line in widget["properties"].get("metrics", []):
            if len(line) > 1:
                namespace, name, *pairs, _ = line
                yield namespace, name, frozenset(pairs[::2]), pairs[1]
            elif search := NAMED.match(line[0]["expression"]):
                yield search[1], search[4], frozenset(search[2].split(",")), search[3]
            else:
                assert "SEARCH" not in line[0]["expression"]


def test_the_dashboard_and_the_alarms_name_what_the_code_tells_and_all_of_it(day: Day) -> None:
    names = day.told.metrics().keys()
    own = {(name, dimensions) for space, name, dimensions, _ in asked_for() if space == observe.NAMESPACE}
    assert own - names == set()
    assert names - own == set()
    assert {name for name, _ in names} == observe.UNITS.keys()
    assert {stage for space, _, _, stage in asked_for() if space == observe.NAMESPACE} == {STAGE}
    assert all(space == observe.NAMESPACE or space.startswith("AWS/") for space, *_ in asked_for())


def test_messages_are_counted_where_they_come_in_and_where_they_end(
    world: World, logs: Told, receiver: Receiver
) -> None:
    topic = pushed(world, receiver.url, retry={"max_attempts": 2, "ladder": [5]})
    for status in (201, 200):
        world.api.post(f"{topic.path}/messages", {"body": "one", "dedup_id": "d"}).expect(status)
    topic.batch([{"body": n} for n in range(3)] + [{"nobody": 1}])
    topic.produce("later", delay_seconds=600)
    world.wake(topic)
    receiver.status = 500
    topic.produce("bad")
    world.wake(topic)
    world.later(topic, 10)
    pull = topic.group("pull")
    messages = pull.receive(10)
    pull.ack(*messages[:2])
    pull.nack(messages[2])
    pull.settle("nack", messages[3:4], dead_letter=True)
    logs.read()
    assert sum(logs.stage("Accepted")) == 1 + 3 + 1 + 1
    assert sum(logs.stage("Delivered")) == 4 + 2
    assert sum(logs.stage("Failed")) == 2 + 2
    assert sum(logs.stage("Dead")) == 1 + 1


def test_the_line_of_a_metric_says_who_sent(world: World, logs: Told) -> None:
    topic = world.api.topic()
    logs.read().lines.clear()
    for app in ("billing", "shop"):
        world.api.call("POST", f"{topic.path}/messages", {"body": 1}, headers={"Headrace-App": app}).expect(
            201
        )
    lines = [line for line in logs.read().lines if "Accepted" in line]
    assert [line["app"] for line in lines] == ["billing", "shop"]
    assert lines[0]["token"] in {each["id"] for each in world.api.get("/v1/tokens").expect(200)["items"]}


def test_what_the_stream_meets_and_cannot_read_is_told(world: World, logs: Told, receiver: Receiver) -> None:
    topic = pushed(world, receiver.url)
    uid = world.deps.catalog.topic(topic.name).uid
    change_control(world, f"topic#{uid}", "group#g", having("mode", {"S": "?"}))
    logs.read().lines.clear()
    keys = {"s": {"S": str(ShardKey(topic.name, uid, 0))}, "o": {"N": "0"}}
    world.call("route", {"Records": [{"eventName": "INSERT", "dynamodb": {"Keys": keys}}]})
    assert logs.read().stage("Undecodable") == [1]
    assert len(logs.events("unreadable")) == 1


def test_dead_letters_that_nobody_settled_are_counted(world: World, logs: Told) -> None:
    topic = world.api.topic(shards=1, retry={"max_attempts": 1})
    group = topic.group()
    topic.produce("x")
    group.receive(1, lease_seconds=1)
    world.clock.advance(5)
    group.receive(1)
    assert sum(logs.read().stage("Dead")) == 1


def test_a_backlog_over_its_alarm_is_told_until_it_is_gone(world: World, logs: Told) -> None:
    topic = world.api.topic(shards=2, alarm_backlog=2)
    group = topic.group()
    topic.batch([{"body": n} for n in range(4)])
    world.clock.advance(90)
    deps = world.deps
    for _ in range(2):
        world.call_with(deps, "sweep")
    logs.read()
    per_topic = frozenset({"service", "topic"})
    assert logs.metrics()["Backlog", per_topic] == [4, 4]
    assert logs.stage("Backlog") == [4, 4]
    assert logs.stage("BacklogOverAlarm") == [1, 1]
    assert all(90 <= age < 100 for age in logs.metrics()["OldestAge", per_topic])
    [line, _] = logs.events("backlog over alarm")
    assert (line["topic"], line["group"], line["messages"], line["alarm"]) == (topic.name, "g", 4, 2)
    group.ack(*group.receive(10))
    logs.lines.clear()
    for _ in range(3):
        world.call_with(deps, "sweep")
    logs.read()
    assert logs.stage("Backlog") == [0], "once, so that nobody keeps the last number in mind"
    assert logs.stage("BacklogOverAlarm") == [0]
    assert logs.events("backlog over alarm") == []


def test_a_stage_at_rest_tells_nothing(world: World, logs: Told, receiver: Receiver) -> None:
    topic = pushed(world, receiver.url, alarm_backlog=1)
    world.later(topic, 10)  # by then every process knows of the consumer
    logs.read().lines.clear()
    deps = world.deps
    jobs = ("mover", "sweep", "assign", "checkpoint", "expire")
    for job in jobs:
        world.call_with(deps, job)
    assert logs.read().metrics() == {}
    assert [line for job in jobs for line in logs.events(job)] == []


def test_without_a_stages_name_no_metric_is_told(world: World, logs: Told) -> None:
    world.adapters = replace(world.adapters, stage="")
    world.api.topic().produce("x")
    assert logs.read().metrics() == {}


def test_a_trace_goes_along_with_its_messages_and_into_the_log(
    world: World, logs: Told, receiver: Receiver
) -> None:
    topic = pushed(world, receiver.url)
    send: Callable[..., Any] = world.api.call
    headers = {"traceparent": TRACE}
    message = send("POST", f"{topic.path}/messages", {"body": "secret-body"}, headers=headers).expect(201)
    receiver.status = 500
    world.wake(topic)
    assert receiver.seen[0].headers["traceparent"] == TRACE
    [line] = logs.read().events("attempt failed")
    expected = {
        "topic": topic.name,
        "group": "g",
        "message_id": message["id"],
        "shard": message["shard"],
        "offset": message["offset"],
        "attempt": 1,
        "consumer": "c",
        "verdict": "FAILED",
        "detail": "HTTP 500",
        "traceparent": TRACE,
    }
    assert line.items() >= expected.items()
    assert "secret-body" not in json.dumps(logs.lines)


@pytest.mark.parametrize(
    ("told_by", "header"),
    [
        ({"traceparent": TRACE.upper()}, None),
        ({"traceparent": "00-" + "0" * 32 + "-00f067aa0ba902b7-01"}, None),
        ({"traceparent": "x"}, None),
        ({}, None),
        ({"TraceParent": TRACE}, TRACE),
    ],
)
def test_only_a_well_formed_trace_goes_along(
    world: World, receiver: Receiver, told_by: Mapping[str, str], header: str | None
) -> None:
    topic = pushed(world, receiver.url)
    world.api.call("POST", f"/v1/publish/{topic.name}", raw=b"x", headers=told_by).expect(201)
    world.wake(topic)
    assert receiver.seen[0].headers.get("traceparent") == header


def test_a_messages_own_trace_stands_and_a_repetition_is_one_whatever_its_trace(
    world: World, receiver: Receiver
) -> None:
    topic = pushed(world, receiver.url)
    own = TRACE.replace("4bf9", "1111")
    message = {"body": 1, "dedup_id": "d", "headers": {"Traceparent": own}}
    path = f"{topic.path}/messages"
    world.api.call("POST", path, message, headers={"traceparent": TRACE}).expect(201)
    del message["headers"]
    answer = world.api.call("POST", path, message, headers={"traceparent": TRACE}).expect(200)
    assert answer["duplicate"]
    world.wake(topic)
    [request] = receiver.seen
    assert request.headers["traceparent"] == own


def test_a_request_that_fails_on_our_side_is_in_the_log_with_its_trace(world: World, logs: Told) -> None:
    topic = world.api.topic()
    world.adapters = replace(world.adapters, log=None)  # type: ignore[arg-type]
    path = f"{topic.path}/messages"
    problem = world.api.call("POST", path, {"body": 1}, headers={"traceparent": TRACE}).refused(503)
    [line] = logs.read().events("unexpected")
    assert (line["request_id"], line["traceparent"]) == (problem["request_id"], TRACE)
    assert logs.stage("Unavailable") == [1]
