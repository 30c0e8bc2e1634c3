"""A day on which each function has something to do, and trouble at its end. It is played once: what roles allow and
what metrics tell are judged by the same."""

from __future__ import annotations

import io
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from chalicelib import observe
from chalicelib.delivery.egress import Egress
from chalicelib.domain.segment import ShardKey
from tests.functional.delivery.receivers import OK, RawReceiver, Receiver, http_receiver, raw_receiver
from tests.support.damage import change_row, having
from tests.support.day import World, a_world, work
from tests.support.http import Topic
from tests.support.roles import Asked, Guard, function_at_work

STAGE = "headrace-test"
Name = tuple[str, frozenset[str]]
"""A metric and the names of its dimensions."""


@dataclass
class Told:
    """The lines on standard output: metrics by name and dimensions, and log lines."""

    output: Callable[[], str]
    """What was written since it was asked the last time."""
    lines: list[dict[str, Any]] = field(default_factory=list)

    def read(self) -> Told:
        self.lines += [json.loads(line) for line in self.output().splitlines() if line.startswith("{")]
        return self

    def metrics(self) -> dict[Name, list[float]]:
        """Every value, by metric."""
        values: defaultdict[Name, list[float]] = defaultdict(list)
        for line in self.lines:
            for directive in line.get("_aws", {}).get("CloudWatchMetrics", []):
                assert directive["Namespace"] == observe.NAMESPACE
                for dimensions in directive["Dimensions"]:
                    assert line["service"] == STAGE
                    assert all(isinstance(line[name], str) for name in dimensions)
                    for metric in directive["Metrics"]:
                        assert observe.UNITS[metric["Name"]] == metric["Unit"]
                        values[metric["Name"], frozenset(dimensions)] += line[metric["Name"]]
        return dict(values)

    def stage(self, name: str) -> list[float]:
        return self.metrics().get((name, frozenset({"service"})), [])

    def events(self, message: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line.get("message") == message]


class Stdout(io.StringIO):
    """Writes to the present `sys.stdout`: a logger keeps the stream that it found at first."""

    def write(self, text: str) -> int:
        return sys.stdout.write(text)


def log_to_stdout() -> None:
    handler: Any = observe._logger().registered_handler
    handler.stream = Stdout()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with http_receiver() as receiver:
        yield receiver


@dataclass(frozen=True)
class Day:
    """The functions' work: the rights it took, those they lacked, calls to hosts, and the output."""

    guard: Guard
    used: frozenset[tuple[str, Asked]]
    denied: tuple[tuple[str, Asked], ...]
    callers: frozenset[str | None]
    told: Told


@pytest.fixture(scope="session")
def day(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Day:
    guard, callers = Guard(), set()
    call = Egress.call

    def calling(self: Egress, *request: Any) -> Any:
        callers.add(function_at_work())
        return call(self, *request)

    log_to_stdout()
    with redirect_stdout(io.StringIO()) as out, a_world(guard, tmp_path_factory.mktemp("day")) as world:
        world.adapters = replace(world.adapters, stage=STAGE, on_skip=partial(observe.unreadable, STAGE))
        with pytest.MonkeyPatch.context() as patch, http_receiver() as receiver:
            patch.setattr(Egress, "call", calling)
            work(world, receiver)
            unwanted(world)
        used, denied = frozenset(guard.used), tuple(guard.denied)
        trouble(world)
    return Day(guard, used, denied, frozenset(callers), Told(out.getvalue).read())


def pushed(world: World, url: str, **settings: Any) -> Topic:
    topic = world.api.topic(shards=1, **settings)
    world.api.put(f"{topic.group().path}/consumers/c", {"url": url}).expect(201)
    return topic


def trouble(world: World) -> None:
    """What a good day does not have."""
    whole = world.adapters
    world.adapters = replace(whole, log=None)  # type: ignore[arg-type]
    topic = world.api.topic()
    world.api.post(f"{topic.path}/messages", {"body": 1}).refused(503)
    world.call("checkpoint")  # no topic can be visited
    world.adapters = whole
    world.api.put("/v1/topics/topics-end", {}).expect(201)  # behind all others, so that a list has an end
    world.call("assign", seconds=0)
    world.clock.advance(60)
    world.call("expire", seconds=0)
    watched_topic = world.api.topic(alarm_backlog=1)
    watched_topic.group()
    metered = watched_topic.group("metered", metrics=True)
    watched_topic.batch([{"body": n} for n in range(3)])
    for _ in range(2):  # the second counts the states that the first has noted
        world.call("sweep")
    metered.nack(*metered.receive(1), dead_letter=True)
    late_topic = world.api.topic(shards=1)
    late_topic.produce("late", delay_seconds=20)
    world.later(late_topic, 100)
    stale(world)
    leaving(world)
    unreadable(world)


def unwanted(world: World) -> None:
    """A group gets none of a topic's messages, and nobody receives."""
    topic = world.api.topic(shards=1)
    topic.group(filter="no-such-tag")
    for _ in range(2):
        topic.produce("x")
        world.wake(topic)
        world.clock.advance(61)
        world.call("sweep")
    assert topic.counts()["backlog"] == 0


def unreadable(world: World) -> None:
    """A message that cannot be read."""
    topic = world.api.topic(shards=1)
    group = topic.group()
    topic.produce("x")
    uid = world.deps.catalog.topic(topic.name).uid
    change_row(world, ShardKey(topic.name, uid, 0), 0, having("m", {"S": "damaged"}))
    assert group.receive() == []


def stale(world: World) -> None:
    """A subscriber answers when its message is no longer its own."""

    def act(_: RawReceiver, sock: Any) -> None:
        world.api.post(f"{topic.path}/groups/g/seek", {"to": "latest"}).expect(200)
        sock.sendall(OK)

    with raw_receiver(act) as receiver:
        topic = pushed(world, receiver.url)
        topic.produce("x")
        world.wake(topic)


def leaving(world: World) -> None:
    """A consumer stays away, and a shard is found by the sweep alone."""
    topic = world.api.topic()
    group = topic.group()
    group.register("a")
    group.register("b")
    world.clock.advance(120)
    for _ in range(20):
        world.call("assign")
