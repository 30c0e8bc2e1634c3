"""What a run does again, and when another one follows it: lost races, refused writes, changes of others, due times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain.call_result import CallResult, PushBatch, Verdict
from chalicelib.domain.errors import Unavailable
from chalicelib.domain.timer import TimerKind
from chalicelib.domain.topic import Group
from chalicelib.services.consume.claimant import Claimant
from chalicelib.services.consume.settle import Nack
from chalicelib.services.core.catalog import CACHE_MS
from chalicelib.services.core.wake import NO_NEWS, DispatchTask, News, task_of, workers_of
from chalicelib.services.push.run import DispatchReport
from chalicelib.store.layout import FRAGMENTS
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.push import EXACT, PushDesk, fails
from tests.support.stages import Stage
from tests.support.troubled import Troubled


def deliver(
    desk: PushDesk,
    group: Group,
    worker: int = 0,
    *,
    consumer_uid: str = "",
    news: News = NO_NEWS,
    before: Callable[[str], bool] = lambda _: False,
) -> DispatchReport:
    """One run; `before` is called with each question to the cursors, and decides whether to refuse it."""
    cursors: Any = Troubled(desk.deps.adapters.cursors, lambda name, *_: before(name))
    deps = Deps(replace(desk.deps.adapters, cursors=cursors))
    is_slow = any(each.is_slow for each in desk.deps.catalog.consumers(desk.topic, group))
    task = DispatchTask(desk.topic.name, group.name, worker, consumer_uid, is_slow)
    return deps.dispatcher.deliver(task, lambda: 600.0, news)


def wakes(desk: PushDesk) -> list[int]:
    """When runs come again, in ms from the start."""
    timers = [t for n in range(FRAGMENTS) for t in desk.deps.adapters.timers.behind(n, "", 9)]
    return sorted(timer.due_ms - START_MS for timer in timers if timer.kind is TimerKind.WAKE)


def test_i10_a_run_that_loses_a_race_claims_again(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.subscriber(group, "one")
    desk.produce(*make.drafts(5))
    rivals = [2]

    def claims_first(name: str) -> bool:
        if name == "write" and rivals:
            assert len(desk.receive(group, rivals.pop())) == 2
        return False

    deliver(desk, group, before=claims_first)
    assert [call.offsets for call in desk.subscribers.calls] == [(2,), (3,), (4,)]


def test_i19_a_run_that_cannot_settle_ends_before_its_time_does(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.subscriber(group, "one")
    desk.produce(make.draft())
    calls = desk.subscribers.calls
    cursors: Any = Troubled(desk.deps.adapters.cursors, lambda name, *_: name == "write" and bool(calls))
    deps = Deps(replace(desk.deps.adapters, cursors=cursors))
    ends_ms = START_MS + 12_000
    task = DispatchTask(desk.topic.name, group.name)
    report = deps.dispatcher.deliver(task, lambda: (ends_ms - stage.clock.now_ms()) / 1000)
    assert (len(calls), report.finished) == (1, False)
    assert stage.clock.now_ms() < ends_ms


@pytest.mark.parametrize("told", [(), (1,)])
@pytest.mark.parametrize("rung", [(), (0,)])
def test_a_run_that_is_woken_for_a_shard_looks_there_too_and_goes_on_to_look_where_it_did(
    stage: Stage, told: tuple[int, ...], rung: tuple[int, ...]
) -> None:
    desk = PushDesk.at(stage, shards=2)
    group = desk.group(max_in_flight=7)
    task = DispatchTask(desk.topic.name, group.name)

    def news(shards: tuple[int, ...]) -> News:
        return News({str(desk.topic.shard_key(shard)): 0 for shard in shards})

    def rings(push_batch: PushBatch) -> CallResult:
        if len(desk.subscribers.calls) == 1:
            desk.produce(make.draft(shard=0), make.draft(shard=1))
            desk.deps.dispatcher.deliver(task, lambda: 600.0, news(rung))
        return CallResult(Verdict.DONE)

    desk.subscriber(group, "one", behaviour=rings)
    desk.produce(make.draft(shard=1))
    desk.deps.dispatcher.deliver(task, lambda: 600.0, news(told))
    assert len(desk.subscribers.calls) == 3


def test_i10_each_worker_comes_back_for_its_own_shard(stage: Stage) -> None:
    desk = PushDesk.at(stage, mode="serial", shards=4, retry=EXACT)
    group = desk.group(max_in_flight=64)
    assert workers_of(desk.topic, group) == 4
    desk.subscriber(group, "one", behaviour=fails(1))
    desk.produce(*(make.draft(shard=shard) for shard in range(4)))
    for worker in range(4):
        deliver(desk, group, worker)
        stage.clock.advance(1_000)
    assert wakes(desk) == [10_000, 11_000, 12_000, 13_000]
    desk.inbox.asked.clear()
    desk.pass_time(9)
    assert len(desk.subscribers.calls) == 8


def due_tasks(desk: PushDesk, seconds: int) -> set[DispatchTask]:
    """The runs that the mover starts when this time has passed."""
    desk.stage.clock.advance(seconds * 1_000)
    desk.inbox.asked.clear()
    desk.deps.mover.run_once()
    return {task_of(event) for function, event in desk.inbox.asked if function == "deliver"}


def test_i10_what_waits_in_a_shard_that_another_worker_has_got_meanwhile_is_left_to_it(stage: Stage) -> None:
    desk = PushDesk.at(stage, mode="serial", shards=4, retry=EXACT)
    group = desk.group(max_in_flight=1)

    def fails_while_workers_come(_: PushBatch) -> CallResult:
        desk.deps.admin.put_group(desk.topic, group.name, {"max_in_flight": 64})
        stage.clock.advance(CACHE_MS + 1)
        return CallResult(Verdict.FAILED, "HTTP 500")

    desk.subscriber(group, "one", behaviour=fails_while_workers_come)
    desk.produce(make.draft(shard=3))
    deliver(desk, group)
    assert due_tasks(desk, 10) == {DispatchTask(desk.topic.name, group.name, 3)}


def test_i10_a_run_of_one_of_a_broadcast_comes_back_for_what_another_run_of_it_held(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group(mode="broadcast")
    consumer = desk.subscriber(group, "one")
    desk.produce(make.draft())
    dead = Claimant(
        topic=desk.topic, group=group, lease_seconds=20, owner=consumer.uid, consumer_uid=consumer.uid
    )
    claim = Deps(stage.another()).claimer.claim(dead, 0, 1)
    assert claim is not None
    assert len(claim.messages) == 1
    desk.inbox.asked.clear()
    deliver(desk, group, consumer_uid=consumer.uid)
    assert wakes(desk) == [20_000]
    assert due_tasks(desk, 20) == {DispatchTask(desk.topic.name, group.name, 0, consumer.uid)}
    desk.pass_time(1)
    assert list(desk.subscribers.numbers().values()) == [[2]]


def test_i10_a_run_comes_back_for_what_another_run_sent_to_a_slow_function(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    function = desk.function(group, "slow", timeout_seconds=200)
    desk.produce(make.draft())
    desk.receive(group, 1, function, lease=205)
    deliver(desk, group)
    assert wakes(desk) == [205_000]


@pytest.mark.parametrize("looks", [1, 2])
def test_i10_a_run_comes_back_for_what_became_due_since_it_looked(stage: Stage, looks: int) -> None:
    """And not for what was due when it looked: time alone makes no room for that."""
    desk = PushDesk.at(stage, mode="serial")
    group = desk.group(max_in_flight=1)
    desk.produce(*(make.draft(ordering_key=key) for key in "ab"))
    _, later = desk.receive(group, 2, desk.subscriber(group, "one"))
    desk.nack(group, [later], Nack(delay_ms=5_000))
    passing_ms = [6_000] if looks == 2 else []
    stage.clock.advance(0 if passing_ms else 5_000)

    def passes(name: str) -> bool:
        if name in {"get", "of_owner"} and passing_ms:
            stage.clock.advance(passing_ms.pop())
        return False

    deliver(desk, group, before=passes)
    assert not passing_ms
    assert desk.subscribers.calls == []
    assert wakes(desk) == [5_000 if looks == 2 else 30_000]


def test_i10_a_run_that_could_not_read_its_group_is_repeated(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.subscriber(group, "one")
    desk.produce(make.draft())
    refusals = [True]
    control: Any = Troubled(desk.deps.adapters.control, lambda *_: refusals.pop() if refusals else False)
    deps = Deps(replace(desk.deps.adapters, control=control))
    with pytest.raises(Unavailable):
        deps.dispatcher.deliver(DispatchTask(desk.topic.name, group.name), lambda: 600.0)


@pytest.mark.parametrize("news", [NO_NEWS, News(changed=True), News(due_ms=START_MS)])
def test_runs_that_find_nothing_leave_one_wake_up(stage: Stage, news: News) -> None:
    """No mover took it too early: it is stored, and another one, later, would start another run for nothing."""
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.subscriber(group, "one", behaviour=lambda _: CallResult(Verdict.FAILED, "refused"))
    desk.produce(*make.drafts(30))
    task = DispatchTask(desk.topic.name, group.name)
    desk.deps.dispatcher.deliver(task, lambda: 600.0)
    stored = wakes(desk)
    for _ in range(5):
        stage.clock.advance(500)
        desk.deps.dispatcher.deliver(task, lambda: 600.0, news)
    assert wakes(desk) == stored


@pytest.mark.parametrize("idle", [0, 6])
def test_the_shards_of_one_run_take_turns_however_many_others_are_empty(stage: Stage, idle: int) -> None:
    desk = PushDesk.at(stage, shards=2 + idle)
    group = desk.group(max_in_flight=1)
    desk.subscriber(group, "one")
    shards = {
        place.id: place.shard for shard in (0, 1) for place in desk.produce(*make.drafts(4, shard=shard))
    }
    deliver(desk, group)
    in_turn = [shards[id] for call in desk.subscribers.calls for id, _ in call.attempts]
    assert in_turn in ([0, 1] * 4, [1, 0] * 4)
