"""`max_in_flight` holds over shards and processes, and is there for whichever shard has the messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain.call_result import CallResult, PushBatch, Verdict
from chalicelib.domain.topic import Group
from chalicelib.services.core.wake import DispatchTask, workers_of
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.push import Inline, PushDesk
from tests.support.stages import Stage


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
        threads=lambda: Inline(),
    )
    return Deps(replace(adapters, cursors=Between(adapters.cursors, before_looks)))


@pytest.mark.many_calls
@pytest.mark.parametrize("at", ["while it sends", "between its claim and its look"])
@pytest.mark.parametrize(
    ("shards", "most", "batch_size"), [(8, 4, 4), (8, 4, 1), (3, 1, 1), (2, 30, 5), (1, 8, 1)]
)
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


@pytest.mark.many_calls
@pytest.mark.parametrize("at", ["while it sends", "between its claim and its look"])
@pytest.mark.parametrize("most", [20, 50, 100, 200])
def test_who_met_others_with_all_the_places_goes_on_where_nobody_else_looks(
    stage: Stage, most: int, at: str
) -> None:
    """Each shard has one worker: it leaves only when nothing is left there, whatever the others had at its look."""
    shards, each = 4, 80
    desk = PushDesk.at(stage, shards=shards)
    group = desk.group(max_in_flight=most)
    tasks = [DispatchTask(desk.topic.name, group.name, worker) for worker in range(shards)]

    def another() -> None:
        if tasks:
            job = tasks.pop()
            deps = twin(desk, another if at.startswith("between") else lambda: None)
            deps.dispatcher.deliver(job, lambda: 60.0)

    def takes(push_batch: PushBatch) -> CallResult:
        if at == "while it sends":
            another()
        return CallResult(Verdict.DONE)

    desk.subscriber(group, "one", behaviour=takes)
    for shard in range(shards):
        desk.produce(*(make.draft(shard=shard) for _ in range(each)))
    while tasks:
        another()
    assert len(desk.subscribers.calls) == shards * each


@pytest.mark.parametrize(
    ("shards", "most", "least"), [(4, 8, 8), (4, 64, 51), (8, 4, 4), (16, 64, 48), (1, 64, 56)]
)
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


def test_a_few_messages_cost_no_look_at_the_other_cursors(stage: Stage) -> None:
    desk = PushDesk.at(stage, shards=4)
    group = desk.group()
    desk.subscriber(group, "one")
    looks = [0]

    def counts() -> None:
        looks[0] += 1

    deps = twin(desk, counts)
    for shard in range(4):
        desk.produce(*(make.draft(shard=shard) for _ in range(3)))
    for worker in range(4):
        deps.dispatcher.deliver(DispatchTask(desk.topic.name, group.name, worker), lambda: 60.0)
    assert len(desk.subscribers.calls) == 12
    assert looks == [0]


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
