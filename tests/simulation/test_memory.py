"""What one run of a function holds in memory has a bound, however much there is to do.

A function that is killed because of what it holds would meet the same amount again when it is repeated, without end. So
each is given more than fits, with everything slow that keeps it waiting, and the bytes that it holds at once are
measured. The time is virtual.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest

from chalicelib.domain.call_result import CallResult, PushBatch, Verdict
from chalicelib.domain.cursor import Cursor
from chalicelib.domain.limits import BLOB_THRESHOLD_BYTES, MAX_BODY_BYTES, MAX_RECEIVE
from chalicelib.domain.sharding import unit_of
from chalicelib.domain.spans import Span
from chalicelib.domain.times import DAY_MS
from chalicelib.domain.topic import Consumer, cursor_key
from chalicelib.ports.world import Blobs
from chalicelib.services.consume.claim_plan import ClaimPlanner
from chalicelib.services.consume.claimant import Claimant
from chalicelib.services.consume.settle import Nack
from chalicelib.services.core.wake import DispatchTask
from chalicelib.services.push.sources import Capacity
from chalicelib.wiring import Deps
from tests.simulation.processes import Clock
from tests.simulation.virtual import Pool, Scheduler
from tests.support import factories as make
from tests.support.planting import Bug, names_of
from tests.support.push import PushDesk, Subscribers
from tests.support.stages import Stage, embedded_stage
from tests.support.troubled import Troubled

MB = 1024 * 1024
_FLOOD = 300_000
_CACHE_MB = 32  # of segments, in each process
_BODY = b'"' + b"x" * (BLOB_THRESHOLD_BYTES - 2_000) + b'"'


class Fetched:
    """ports.Blobs whose bodies come as new bytes each time, as from S3."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blobs, name)

    def get(self, name: str) -> bytes | None:
        body = self._blobs.get(name)
        return None if body is None else bytes(memoryview(body))


@dataclass
class Slow(Subscribers):
    """Subscribers that take their time."""

    scheduler: Scheduler = field(default_factory=Scheduler)

    def send(self, consumer: Consumer, push_batch: PushBatch, seconds: float) -> tuple[CallResult, ...]:
        self.scheduler.wait(5_000)
        self.bodies += [b""] * len(push_batch.attempts)
        return tuple(CallResult(Verdict.DONE) for _ in push_batch.attempts)


@contextmanager
def measured() -> Iterator[Callable[[], float]]:
    """The most megabytes that were held at once since the beginning, beside what was held then."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1] / MB
    finally:
        tracemalloc.stop()


def process(stage: Stage, scheduler: Scheduler, **ports: Any) -> Deps:
    """A process with an empty cache, in virtual time."""
    adapters = stage.another()
    scheduler.now = stage.clock.now_ms()
    settings: dict[str, Any] = {
        "blobs": Fetched(adapters.blobs),
        "clock": Clock(scheduler, 0),
        "threads": lambda: Pool(scheduler, 256),
    }
    return Deps(replace(adapters, **{**settings, **ports}))


@pytest.fixture(scope="module")
def waiting() -> PushDesk:
    """Large unclaimed messages."""
    desk = PushDesk.at(embedded_stage())
    desk.subscriber(desk.group(), "one")
    for _ in range(300):
        desk.produce(replace(make.draft(1), body=_BODY))
    return desk


def done(scheduler: Scheduler, work: Callable[[], object]) -> None:
    """Do it in virtual time, to its end."""
    home: Any = SimpleNamespace(alive=True)
    scheduler.spawn(work, home)
    scheduler.run(scheduler.now + DAY_MS)
    assert not scheduler.tasks
    assert not scheduler.errors


def test_a_delivery_to_slow_subscribers_holds_64_mb_of_bodies() -> None:
    stage, scheduler = embedded_stage(), Scheduler()
    desk = PushDesk.at(stage, max_body_bytes=MAX_BODY_BYTES)
    group = desk.group(max_in_flight=256)
    desk.subscriber(group, "one")
    body = b'"' + b"x" * (MAX_BODY_BYTES - 2) + b'"'
    for _ in range(30):
        desk.produce(replace(make.draft(1), body=body))
    del body
    subscribers = Slow(desk.subscribers.clock, scheduler=scheduler)
    deps = process(stage, scheduler, sender=lambda: subscribers)
    with measured() as most_mb:
        task = DispatchTask(desk.topic.name, group.name)
        done(scheduler, lambda: deps.dispatcher.deliver(task, lambda: 800.0))
        assert most_mb() < 64 + 16
    account = desk.deps.surveyor.exact_group(desk.topic, group).account
    assert account.success == account.total == 30


def test_a_claim_of_many_that_wait_holds_what_one_answer_may_have() -> None:
    stage, scheduler = embedded_stage(), Scheduler()
    desk = PushDesk.at(stage)
    group = desk.group(max_in_flight=1_000)
    for _ in range(300):
        desk.produce(replace(make.draft(1), body=_BODY))
    receipts: list[str] = []
    while messages := desk.receive(group, MAX_RECEIVE):
        receipts += desk.receipts(messages)
    desk.deps.settler.nack(desk.topic, group, receipts, Nack())
    deps = process(stage, scheduler)
    with measured() as most_mb:
        messages = deps.receiver.receive(desk.topic, group, None, MAX_RECEIVE, 0, 30)
        assert most_mb() < _CACHE_MB
    assert len(messages) == 20


@pytest.mark.parametrize("job", ["sweeper", "watch", "assigner", "checkpointer", "expirer", "body_sweeper"])
def test_what_runs_by_the_clock_holds_no_bodies(waiting: PushDesk, job: str) -> None:
    scheduler = Scheduler()
    deps = process(waiting.stage, scheduler)
    with measured() as most_mb:
        done(scheduler, lambda: getattr(deps, job).run_once(lambda: True))
        assert most_mb() < 16


def test_burying_what_waits_holds_what_one_answer_may_have() -> None:
    stage, scheduler = embedded_stage(), Scheduler()
    desk = PushDesk.at(stage, retention_days=1)
    group = desk.group(max_in_flight=1_000)
    for _ in range(300):
        desk.produce(replace(make.draft(1), body=_BODY))
    while desk.receive(group, MAX_RECEIVE, lease=10):
        pass
    stage.clock.advance(DAY_MS + 1)
    deps = process(stage, scheduler)
    with measured() as most_mb:
        done(scheduler, lambda: deps.expirer.run_once(lambda: True))
        assert most_mb() < _CACHE_MB + 16 + 300 * len(_BODY) / MB, "beside the dead letters themselves"


def test_a_mover_whose_shards_are_slow_holds_a_few_looks() -> None:
    stage, scheduler = embedded_stage(), Scheduler()
    desk = PushDesk.at(stage, shards=16)
    due_ms = stage.clock.now_ms() + 1_000
    for first in range(0, 800, 20):
        delayed = [make.draft(n, due_ms=due_ms + n, shard=n // 50) for n in range(first, first + 20)]
        desk.produce(*(replace(each, body=_BODY) for each in delayed))

    def is_throttled(name: str, *_: object) -> bool:
        if name == "put":
            scheduler.wait(8_000)
        return name == "put"

    deps = process(stage, scheduler, log=Troubled(stage.adapters.log, is_throttled))
    scheduler.now += 5_000
    end_ms = scheduler.now + 20_000
    with measured() as most_mb:
        done(scheduler, lambda: deps.mover.run_once(lambda: scheduler.now < end_ms))
        assert most_mb() < 3 * 34


@dataclass
class Flooded:
    """A group whose cursor on a shard or a lane says that very many messages wait: a new lane may hold
    so many, a damaged cursor may say so. The first of them are there."""

    mode: str = "queue"
    in_lane: bool = False

    def __post_init__(self) -> None:
        self.scheduler, self.desk = Scheduler(), PushDesk.at(embedded_stage())
        self.group = self.desk.group(mode=self.mode)
        self.desk.produce(make.draft(1), make.draft(2))
        if self.in_lane:
            self.desk.nack(self.group, self.desk.receive(self.group), Nack(60_000))
            self.desk.stage.clock.advance(61_000)
            self.desk.deps.mover.run_once()
        self.shard = None if self.in_lane else 0
        span = Span(0, _FLOOD, attempt=2, unit=unit_of(None, None) if self.mode == "serial" else "")
        key = cursor_key(self.desk.topic, self.group, self.shard)
        self.desk.stage.adapters.cursors.create(key, Cursor(next=span.end, waiting=(span,)))
        self.deps = process(self.desk.stage, self.scheduler)

    def receive(self) -> int:
        return len(self.deps.receiver.receive(self.desk.topic, self.group, None, 2, 0, 30))

    def expire(self) -> int:
        claimant = Claimant(topic=self.desk.topic, group=self.group, lease_seconds=30)
        answers = iter([True] * 3)
        return self.deps.claimer.expire(claimant, self.shard, lambda: next(answers, False))

    def find_in_the_lane(self) -> int:
        key = cursor_key(self.desk.topic, self.group, 0)
        entry = self.deps.statuses.lane_entry(self.desk.topic, self.group, key, 1)
        return entry.attempt if entry else 0

    def list_retrying(self) -> int:
        (survey,) = self.deps.surveyor.survey(self.desk.topic).groups
        return len(list(islice(survey.locations_of("RETRYING"), 50)))


@pytest.mark.parametrize(
    ("mode", "in_lane", "work", "result"),
    [
        ("queue", False, Flooded.receive, 2),
        ("serial", False, Flooded.receive, 1),
        ("queue", True, Flooded.receive, 2),
        ("queue", False, Flooded.expire, 0),
        ("queue", True, Flooded.expire, 0),
        ("queue", True, Flooded.find_in_the_lane, 2),
        ("queue", False, Flooded.list_retrying, 50),
    ],
)
def test_no_work_lists_all_that_a_cursor_says_wait(
    mode: str, in_lane: bool, work: Callable[[Flooded], int], result: int
) -> None:
    flooded = Flooded(mode, in_lane)
    with measured() as most_mb:
        assert work(flooded) == result
        assert most_mb() < 8


BUGS: dict[str, tuple[Bug, Callable[[], None]]] = {
    "a run that sends whatever it may": (
        Bug(Capacity, "room", "if self._bytes >= MAX_BYTES_UNDER_WAY:", "if False:"),
        test_a_delivery_to_slow_subscribers_holds_64_mb_of_bodies,
    ),
    "a claim that reads all that waits": (
        Bug(ClaimPlanner, "_back", "or size > MAX_ANSWER_BYTES:", "or False:"),
        test_a_claim_of_many_that_wait_holds_what_one_answer_may_have,
    ),
    "a burial that holds all that waits": (
        Bug(ClaimPlanner, "_buried_of_waiting", "if size > MAX_ANSWER_BYTES:", "if False:"),
        test_burying_what_waits_holds_what_one_answer_may_have,
    ),
}


@pytest.mark.parametrize("name", names_of(BUGS, {"a burial that holds all that waits"}))
def test_a_planted_bug_is_seen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    bug, check = BUGS[name]
    bug.plant(monkeypatch)
    with pytest.raises(AssertionError):
        check()
