"""`max_in_flight` holds over shards and processes, and is there for whichever shard has the messages."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, cast

import pytest

from chalicelib.domain.call_result import CallResult, PushBatch, Verdict
from chalicelib.domain.topic import Group
from chalicelib.services.core.wake import DispatchTask, News, workers_of
from chalicelib.store.cursors import Cursors
from chalicelib.store.log import Log
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.push import PushDesk
from tests.support.stages import Stage
from tests.support.troubled import Counted


class Between:
    """A process's cursors: something happens before each look at all of them."""

    def __init__(self, cursors: Any, before: Callable[[], None]) -> None:
        self._cursors = cursors
        self._before = before

    def __getattr__(self, name: str) -> Any:
        if name == "of_owner":
            self._before()
        return getattr(self._cursors, name)


def leased(desk: PushDesk, group: Group) -> int:
    return sum(c.in_flight for c in desk.deps.adapters.cursors.of_owner(group.uid, consistent=True).values())


def twin(desk: PushDesk, before_looks: Callable[[], None] = lambda: None) -> Deps:
    """Another process of the same stage."""
    adapters = replace(
        desk.stage.another(),
        sender=lambda: desk.subscribers,
        invoker=desk.inbox,
    )
    return Deps(replace(adapters, cursors=cast(Any, Between(adapters.cursors, before_looks))))


@pytest.mark.parametrize("at", ["while it sends", "between its claim and its look"])
@pytest.mark.parametrize(("shards", "most", "batch_size"), [(3, 1, 1), (2, 30, 5)])
def test_deliveries_of_one_group_beside_one_another_keep_to_what_it_allows(
    stage: Stage, shards: int, most: int, batch_size: int, at: str
) -> None:
    desk = PushDesk.at(stage, shards=shards)
    group = desk.group(max_in_flight=most, batch_size=batch_size, payload="batch")
    jobs = [
        DispatchTask(desk.topic.name, group.name, worker) for worker in range(workers_of(desk.topic, group))
    ]
    depth, peaks, count = [0], [0], [0]

    def another() -> None:
        if depth[0] < 4:
            depth[0] += 1
            deps = twin(desk, another if at.startswith("between") else lambda: None)
            deps.dispatcher.deliver(jobs[depth[0] % len(jobs)], lambda: 60.0)
            depth[0] -= 1

    def takes(push_batch: PushBatch) -> CallResult:
        count[0] += len(push_batch.attempts)
        under_way[depth[0]] = len(push_batch.attempts)
        peaks[0] = max(peaks[0], sum(under_way.values()))
        if at == "while it sends":
            peaks[0] = max(peaks[0], leased(desk, group))
            another()
        del under_way[depth[0]]
        return CallResult(Verdict.DONE)

    under_way: dict[int, int] = {}
    desk.subscriber(group, "one", behaviour=takes)
    for shard in range(shards):
        desk.produce(*(make.draft(shard=shard) for _ in range(40)))
    another()
    for _ in range(3):
        desk.push()
    assert peaks[0] <= most
    assert count[0] == 40 * shards
    assert {numbers[0] for numbers in desk.subscribers.numbers().values()} == {1}


def news(desk: PushDesk, shard: int, last: int = 0) -> News:
    return News({str(desk.topic.shard_key(shard)): last})


def test_a_message_costs_as_many_reads_in_one_of_many_shards_as_in_one_of_few(stage: Stage) -> None:
    """Where no shard has a guarantee, and one run serves them all."""
    calls: list[dict[str, int]] = []
    for shards in (4, 64):
        desk = PushDesk.at(stage, shards=shards)
        group = desk.group(max_in_flight=6)
        desk.subscriber(group, "one")
        desk.push()
        desk.produce(make.draft(shard=3))
        log, cursors = Counted(desk.deps.adapters.log), Counted(desk.deps.adapters.cursors)
        adapters = replace(desk.deps.adapters, log=cast(Log, log), cursors=cast(Cursors, cursors))
        Deps(adapters).dispatcher.deliver(
            DispatchTask(desk.topic.name, group.name), lambda: 60.0, news(desk, 3)
        )
        assert len(desk.subscribers.calls) == 1
        calls.append({**log.calls, **cursors.calls})
    assert calls[0] == calls[1]
    assert sum(calls[0].values()) <= 6


def test_who_filled_the_last_slot_comes_to_whom_it_left_none_though_it_saw_free_ones(stage: Stage) -> None:
    """One run has a slot, another one claims the last; before it reads the cursors, a third finds none, and the first
    one ends."""
    desk = PushDesk.at(stage, shards=4)
    group = desk.group(max_in_flight=2)
    task = DispatchTask(desk.topic.name, group.name)
    has_begun, may_end = threading.Event(), threading.Event()

    def takes(push_batch: PushBatch) -> CallResult:
        if push_batch.attempts[0].message.shard == 0:
            has_begun.set()
            assert may_end.wait(20)
        return CallResult(Verdict.DONE)

    def before_look() -> None:
        if not may_end.is_set():
            twin(desk).dispatcher.deliver(task, lambda: 60.0, news(desk, 2))
            may_end.set()
            first.result(20)

    desk.subscriber(group, "one", behaviour=takes)
    desk.produce(*(make.draft(shard=shard) for shard in range(3)))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(twin(desk).dispatcher.deliver, task, lambda: 60.0, news(desk, 0))
        assert has_begun.wait(20)
        twin(desk, before_look).dispatcher.deliver(task, lambda: 60.0, news(desk, 1))
    assert len(desk.subscribers.calls) == 3


@pytest.mark.parametrize(("shards", "most", "least"), [(4, 8, 8), (16, 64, 48), (1, 64, 56)])
def test_one_busy_shard_of_many_may_have_nearly_all_of_it(
    stage: Stage, shards: int, most: int, least: int
) -> None:
    desk = PushDesk.at(stage, shards=shards)
    group = desk.group(max_in_flight=most)
    peak = [0]

    def counts(push_batch: PushBatch) -> CallResult:
        peak[0] = max(peak[0], leased(desk, group))
        return CallResult(Verdict.DONE)

    desk.subscriber(group, "one", behaviour=counts)
    desk.produce(*(make.draft(shard=shards - 1) for _ in range(100)))
    desk.push()
    assert least <= peak[0] <= most


def test_what_callers_pull_takes_no_place_of_those_that_are_called(stage: Stage) -> None:
    desk = PushDesk.at(stage, shards=2)
    group = desk.group(max_in_flight=2)
    desk.subscriber(group, "one")
    desk.produce(*(make.draft(shard=0) for _ in range(5)))
    assert len(desk.deps.receiver.receive(desk.topic, group, None, 5, 0, 30)) == 5
    desk.produce(*(make.draft(shard=1) for _ in range(5)))
    desk.push()
    assert len(desk.subscribers.calls) == 5


@pytest.mark.parametrize("pulled", [1, 8])
def test_what_callers_pulled_from_a_shard_takes_no_place_there_either(stage: Stage, pulled: int) -> None:
    desk = PushDesk.at(stage, shards=1)
    group = desk.group(max_in_flight=8)
    desk.produce(*(make.draft() for _ in range(pulled)))
    assert len(desk.deps.receiver.receive(desk.topic, group, None, 10, 0, 3_600)) == pulled
    peak = [0]

    def counts(push_batch: PushBatch) -> CallResult:
        peak[0] = max(peak[0], leased(desk, group) - pulled)
        return CallResult(Verdict.DONE)

    desk.subscriber(group, "one", behaviour=counts)
    desk.produce(*(make.draft() for _ in range(20)))
    desk.push()
    assert len(desk.subscribers.calls) == 20
    assert peak[0] == 8 - 1, "one is the lane's"


@pytest.mark.parametrize("then", ["removed", "called", "not known yet"])
def test_what_was_pulled_takes_no_place_whatever_becomes_of_who_pulled_it(stage: Stage, then: str) -> None:
    desk = PushDesk.at(stage, shards=1)
    group = desk.group(max_in_flight=8)
    desk.subscriber(group, "hook")
    pusher = twin(desk)
    pusher.assignments.current(desk.topic, group)
    puller = desk.consumer(group, "desk")
    desk.produce(*(make.draft(n) for n in range(8)))
    pulled_messages = desk.deps.receiver.receive(desk.topic, group, puller, 8, 0, 12 * 3600)
    assert len(pulled_messages) == 8
    if then == "removed":
        desk.deps.registry.unregister(desk.topic, group, puller)
    elif then == "called":
        desk.subscriber(group, "desk")
    if then != "not known yet":
        stage.clock.advance(4_000)
    desk.produce(make.draft("new"))
    pusher.dispatcher.deliver(DispatchTask(desk.topic.name, group.name), lambda: 60.0)
    assert len(desk.subscribers.calls) == 1
