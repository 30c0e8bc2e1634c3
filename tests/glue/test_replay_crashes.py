"""A replay's job dies at any of its calls, or loses answers: run again, every message is there once, and in order.

Only calls leave a trace, so a job that dies before a call is one that died after the call before.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql import SparkSession

import app
from chalicelib import adapters, wiring
from glue_jobs.common import job, session
from glue_jobs.common.arguments import DONE, FAILED
from glue_jobs.common.schemas import MESSAGES
from glue_jobs.common.service import Refused, Service
from glue_jobs.replaying import options
from glue_jobs.replaying import run as replay
from glue_jobs.replaying.sender import ReplaySender, Sent
from local.gateway import Answer, Gateway
from local.server import serve
from tests.conftest import SOAK
from tests.support.embedded import embedded_adapters
from tests.support.http import Client, Group, Topic

from .archives import fill, frame, message
from .journals import Place

_BOUND_SECONDS = 300.0
SHARDS = 2
NEVER = sys.maxsize
STEP = 1 if SOAK else 3  # from one death to the next, in calls
ARCHIVED = [message(n, minutes=n, shard=n % SHARDS, offset=n // SHARDS) for n in range(4)]
ARCHIVED += [message(n, minutes=24 * 60 + n, shard=0, offset=n) for n in (4, 5)]  # of the next day
IN_ONE_TASK = [message(n, shard=1, offset=n) for n in range(3)]
RATE = 4  # two senders


@dataclass
class Road:
    """The way to Headrace. A job that is `dead` after some calls is heard no more; answers may be `lost` once each."""

    gateway: Gateway
    dead_after: int = NEVER
    lossy: bool = False
    calls: list[str] = field(default_factory=list)
    meeting: Callable[[int], None] = lambda number: None

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._lost: set[tuple[str, str, bytes | None]] = set()

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> Answer:
        with self._lock:
            self.calls.append(f"{method} {path}")
            number = len(self.calls)
        if number > self.dead_after:
            return 503, {}, b"{}"
        self.meeting(number)
        answer = self.gateway.handle(method, path, headers, body)
        call = (method, path, body)
        if number == self.dead_after or (self.lossy and call not in self._lost):
            self._lost.add(call)
            return 503, {}, b"{}"
        return answer


@dataclass
class World:
    """Headrace in memory, a road to it that breaks, and jobs that take it."""

    api: Client
    road: Road
    url: str

    def service(self, *pauses: float) -> Service:
        assert self.api.token
        return Service(self.url, self.api.token, pauses=pauses)

    def target(self) -> tuple[Group, Group]:
        """The group that a replay is for, and another of its topic."""
        topic = self.api.topic(shards=SHARDS)
        return topic.group("mine"), topic.group("other")

    def asked(self, into: Topic) -> str:
        """A replay of all that is archived."""
        times = {"from": "2030-01-01T00:00:00.000Z", "to": "2030-01-03T00:00:00.000Z"}
        body = {**times, "into": into.name, "group": "mine", "rate": RATE}
        return str(self.api.post("/v1/topics/orders/replays", body).expect(202)["replay_id"])


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    deps = wiring.Deps(embedded_adapters(adapters.SystemClock(), adapters.SystemRandom()))
    monkeypatch.setattr(wiring, "deps", lambda: deps)
    gateway = Gateway(app.app)
    road = Road(gateway)
    server = serve(road)
    server.start()
    yield World(Client(gateway, deps.tokens.ensure_admin(None)), road, f"http://127.0.0.1:{server.port}")
    server.shutdown()


@pytest.fixture(scope="module")
def archive(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place.in_folder(spark, tmp_path_factory.mktemp("archive") / "bucket", "crashes")
    fill(place, messages=ARCHIVED)
    return place


@pytest.fixture
def run(archive: Place, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs the whole job; its exit code."""
    monkeypatch.setattr(session, "start", lambda *_, **__: archive.spark)
    monkeypatch.setattr(archive.spark, "stop", lambda: None)
    monkeypatch.setenv("HEADRACE_TOKEN", "hr_x_12345678")
    monkeypatch.setattr(
        replay, "_BEAT_SECONDS", _BOUND_SECONDS
    )  # calls are counted, however slow the machine

    def run_job(service: Service, *choice: str) -> int:
        args = ["--bucket", archive.name, "--folder", str(archive.folder)]
        return job.run_guarded(
            "replay", lambda: replay.run(options.of_replay(None, [*args, *choice]), service)
        )

    return run_job


def check_history(
    mine: Group, other_group: Group, replay_id: str, archived_messages: Sequence[dict[str, Any]]
) -> None:
    """The group has every message once, marked, each shard's in their order; no other group has any."""
    messages = mine.receive(1000)
    assert sorted(m["headers"]["headrace-replay-of"] for m in messages) == [
        each["id"] for each in archived_messages
    ]
    assert {m["headers"]["headrace-replay"] for m in messages} == {replay_id}
    for shard in range(SHARDS):
        places = sorted(
            (m["offset"], m["headers"]["headrace-replay-of"]) for m in messages if m["shard"] == shard
        )
        assert [id for _, id in places] == [
            each["id"] for each in archived_messages if each["shard"] == shard
        ]
    assert other_group.receive(1000) == []
    assert mine.topic.accepted == len(archived_messages)


def test_a_job_that_dies_after_any_call_is_run_again_and_every_message_comes_once(
    world: World, run: Callable[..., int]
) -> None:
    call_count, code = 0, FAILED
    while code != DONE:
        mine, other_group = world.target()
        replay_id = world.asked(mine.topic)
        world.road.calls.clear()
        world.road.dead_after = call_count
        code = run(world.service(), "--replay", replay_id)
        assert code in (DONE, FAILED)
        calls, world.road.dead_after = list(world.road.calls), NEVER
        assert run(world.service(), "--replay", replay_id) == DONE, f"after {calls[:call_count]}"
        check_history(mine, other_group, replay_id, ARCHIVED)
        view = world.api.get(f"/v1/replays/{replay_id}").expect(200)
        assert view.items() >= {"state": "DONE", "matched": 6, "error": None}.items()
        call_count += STEP
    methods = [call.partition(" ")[0] for call in calls]
    assert (methods.count("GET"), methods.count("PATCH"), methods.count("POST")) == (1, 4, 3)
    assert len(calls) < call_count - STEP <= len(calls) + STEP


def test_every_answer_may_be_lost_once_and_a_single_run_sends_every_message_once(
    world: World, run: Callable[..., int]
) -> None:
    mine, other_group = world.target()
    replay_id = world.asked(mine.topic)
    world.road.lossy = True
    assert run(world.service(0.0), "--replay", replay_id) == DONE
    check_history(mine, other_group, replay_id, ARCHIVED)
    assert len(world.road.calls) == 2 * 8


def test_a_lost_answer_to_its_making_leaves_one_replay_that_never_begins(
    world: World, run: Callable[..., int]
) -> None:
    mine, other_group = world.target()
    world.road.lossy = True
    choice = ["--topic", "orders", "--from", "2030-01-01", "--to", "2030-01-03", "--rate", str(RATE)]
    assert run(world.service(0.0), *choice, "--into", mine.topic.name, "--group", "mine") == DONE
    replay_ids = {
        path.split("/")[3] for call in world.road.calls if "/v1/replays/" in (path := call.split()[1])
    }
    assert len(replay_ids) == 1
    check_history(mine, other_group, replay_ids.pop(), ARCHIVED)


@dataclass
class Task:
    """One task of a replay: shard 1, a message at a time."""

    world: World
    rows: list[Any]

    def __post_init__(self) -> None:
        self.mine, self.other = self.world.target()
        self.asked = self.world.asked(self.mine.topic)
        self.world.road.calls.clear()

    def attempt(self) -> Sent:
        """Try it from its beginning."""
        sender = ReplaySender(
            service=self.world.service(), replay=self.asked, rate=1, now=lambda: 0.0, sleep=lambda _: None
        )
        [total] = sender.partition(self.rows)
        return total

    def check(self) -> None:
        check_history(self.mine, self.other, self.asked, IN_ONE_TASK)


@pytest.fixture(scope="module")
def shard(spark: SparkSession) -> list[Any]:
    return frame(spark, MESSAGES, IN_ONE_TASK).collect()


@pytest.mark.parametrize("call_count", range(4))
def test_a_task_that_fails_after_any_call_is_tried_again(
    world: World, shard: list[Any], call_count: int
) -> None:
    task = Task(world, shard)
    world.road.dead_after = call_count
    with pytest.raises(Refused):
        task.attempt()
    world.road.dead_after = NEVER
    assert task.attempt() == Sent(3, before=call_count)
    task.check()


@pytest.mark.parametrize("held_call", [1, 2, 3])
def test_a_task_that_was_given_up_too_early_goes_on_beside_its_successor(
    world: World, shard: list[Any], held_call: int
) -> None:
    task, end = Task(world, shard), threading.Event()
    arrival = threading.Event()

    def meet(number: int) -> None:
        if number == held_call:
            arrival.set()
            assert end.wait(_BOUND_SECONDS)

    world.road.meeting = meet
    with ThreadPoolExecutor(1) as threads:
        zombie = threads.submit(task.attempt)
        assert arrival.wait(_BOUND_SECONDS)
        assert task.attempt() == Sent(3, before=held_call - 1)
        end.set()
        assert zombie.result(_BOUND_SECONDS) == Sent(3, before=4 - held_call)
    task.check()


def _meet(barrier: threading.Barrier) -> None:
    barrier.wait()


def test_two_attempts_at_a_task_in_step_send_every_message_once(world: World, shard: list[Any]) -> None:
    task, together = Task(world, shard), threading.Barrier(2, timeout=_BOUND_SECONDS)
    world.road.meeting = lambda number: _meet(together)
    with ThreadPoolExecutor(2) as threads:
        first, second = [
            each.result(_BOUND_SECONDS) for each in [threads.submit(task.attempt) for _ in range(2)]
        ]
    assert first + second == Sent(6, before=3)
    task.check()
