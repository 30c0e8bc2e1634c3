"""What the rehearsal uses a stage for, from outside: each function does something, and asserts how it ends."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.client import HTTPException
from typing import Any

from chalicelib.domain.status import Status
from tests.infra.ministack import Calls, wait_until
from tests.infra.rehearsed_stage import HOST, PATIENCE_SECONDS, SCHEDULE_SECONDS, Subscriber
from tests.support.browser import Browser
from tests.support.http import Client, Group, Topic
from tests.support.walk import unreached_paths


def is_shown_behind_its_prefix(api: Client) -> None:
    """Every page of the console, by its links, at the stage's own address; signing in and an action lead back there."""
    assert isinstance(api.gateway, Calls)
    calls, prefix = Calls(api.gateway.port, ""), api.gateway.root
    topic = api.topic(shards=1)
    group = topic.group("desk")
    api.put(f"{group.path}/consumers/hook", {"url": f"https://{HOST}/falters"}).expect(201)
    topic.produce({"order": 2}, delay_seconds=600)
    daily = {"topic": topic.name, "message": {"body": "report"}, "cron": "@daily"}
    api.put(f"/v1/schedules/{topic.name}-daily", daily).expect(201)
    pulls = topic.group("pulls")
    topic.produce({"order": 1})
    pulls.nack(*pulls.receive(1), dead_letter=True)
    browser = Browser(calls)
    browser.get(f"{prefix}/console")
    screen = browser.post(f"{prefix}/console/sign-in", {"token": str(api.token), "back": ""})
    assert (screen.status, screen.url) == (200, f"{prefix}/console")
    paths = unreached_paths(browser, prefix, topic.name)
    assert paths <= {"/console/topics/{topic}/places/{shard}/{offset}"}, paths  # a link of each attempt
    screen = browser.get(f"{prefix}/console/topics/{topic.name}")
    screen = browser.submit(screen.form("pause_group"))
    assert screen.url.startswith(f"{prefix}/console/topics/{topic.name}?did=pause_group")


def send_delayed(api: Client) -> tuple[Group, float]:
    """A message that a wake-up brings, or the schedule of the minute after."""
    topic = api.topic(shards=1)
    group = topic.group("pulls")
    topic.produce("later", delay_seconds=65)
    return group, time.time() + 65


def prepare(api: Client) -> str:
    topic = api.topic(shards=1)
    half = {"message": {"body": "half"}, "check_url": f"https://{HOST}/check", "check_after_seconds": 15}
    transaction = api.post(f"{topic.path}/transactions", half).expect(201)
    assert transaction["state"] == "PREPARED"
    return str(transaction["transaction_id"])


def pulls_in_three_modes(api: Client) -> None:
    topic = api.topic(shards=2)
    queue, serial = topic.group("queue"), topic.group("serial", mode="serial")
    broadcast = topic.group("broadcast", mode="broadcast")
    for consumer in ("a", "b"):
        broadcast.register(consumer)
    for n in range(3):
        topic.produce(n, ordering_key="k")

    assert sorted(queue.bodies(10, wait_seconds=5)) == [0, 1, 2]
    for n in range(3):
        (message,) = serial.receive(1, wait_seconds=5)
        assert message["body"] == n
        assert serial.ack(message) == ["ok"]
    for consumer in ("a", "b"):
        assert sorted(broadcast.bodies(10, consumer=consumer, wait_seconds=5)) == [0, 1, 2]


def is_pushed_retried_buried_and_redriven(api: Client, subscriber: Subscriber) -> None:
    topic = api.topic(shards=1, retry={"max_attempts": 3, "ladder": [1]})
    groups = {name: topic.group(name) for name in ("good", "falters", "broken")}
    for name, group in groups.items():
        consumer = api.put(f"{group.path}/consumers/c", {"url": f"https://{HOST}/{name}"}).expect(201)
        assert consumer["state"] == "ACTIVE", consumer
    message = topic.produce({"order": 188}, keys=["order-188"])

    wait_until(lambda: subscriber.bodies("/good") == [{"order": 188}], PATIENCE_SECONDS)
    wait_until(lambda: len(subscriber.bodies("/falters")) == 2, PATIENCE_SECONDS)
    wait_until(lambda: topic.counts("broken")["dead"] == 1, PATIENCE_SECONDS)
    (letter,) = api.get(f"{groups['broken'].path}/dead-letters").expect(200)["items"]
    assert letter["reason"] == "REJECTED"

    subscriber.mended = True
    assert api.post(f"{groups['broken'].path}/dead-letters/redrive").expect(200)["redriven"] == 1
    wait_until(lambda: len(subscriber.bodies("/broken")) == 2, PATIENCE_SECONDS)
    for group in groups.values():
        wait_until(partial(_has_succeeded, group, message["id"]), PATIENCE_SECONDS)
    assert api.get(f"{topic.path}/messages?key=order-188").expect(200)["items"]


def _has_succeeded(group: Group, message_id: str) -> bool:
    return bool(group.status_of(message_id)["status"] == Status.SUCCESS)


@contextlib.contextmanager
def a_producer(topic: Topic, numbers: set[int]) -> Iterator[threading.Event]:
    """Sends numbers one after the other, each until it was accepted, as its dedup id allows; `numbers` are those that
    were. The event: the first one was."""
    first, stop = threading.Event(), threading.Event()

    def run() -> None:
        n = 1
        while not stop.is_set():
            try:
                answer = topic.api.post(f"{topic.path}/messages", {"body": n, "dedup_id": str(n)})
            except (OSError, HTTPException):  # unknown: the same once more
                continue
            if answer.status in (200, 201):
                numbers.add(n)
                first.set()
                n += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield first
    finally:
        stop.set()
        thread.join()


def is_committed_when_asked(api: Client, subscriber: Subscriber, transaction: str) -> None:
    def state() -> str:
        return str(api.get(f"/v1/transactions/{transaction}").expect(200)["state"])

    wait_until(lambda: state() == "COMMITTED", SCHEDULE_SECONDS)
    assert subscriber.bodies("/check")[0]["transaction_id"] == transaction


def comes_after_its_time(group: Group, due: float) -> None:
    deadline = max(due, time.time()) + SCHEDULE_SECONDS  # what came before may have taken longer than that
    bodies: list[Any] = []
    while not bodies:
        assert time.time() < deadline, f"the delayed message did not come within {SCHEDULE_SECONDS:g} s"
        bodies = group.bodies(wait_seconds=20)
    assert bodies == ["later"]
    assert time.time() >= due - 1
