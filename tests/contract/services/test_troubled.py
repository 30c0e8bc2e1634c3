"""What a store or a bucket refuses for a while, in the middle of a delivery, costs no message its attempts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from chalicelib.domain.call_result import CallResult, PushBatch, Verdict
from chalicelib.domain.cursor_write import Change
from chalicelib.domain.errors import Unavailable, unavailable
from chalicelib.domain.ladder import Retry
from chalicelib.domain.limits import BLOB_THRESHOLD_BYTES
from chalicelib.domain.segment import ShardKey
from chalicelib.domain.times import SECOND_MS
from chalicelib.domain.topic import Group
from chalicelib.ports.world import Blobs
from chalicelib.services.core.catalog import CACHE_MS
from chalicelib.services.core.wake import DispatchTask
from chalicelib.store.cursors import Cursors
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import ManualClock
from tests.support.desk import Desk, attempts
from tests.support.push import PushDesk, fails
from tests.support.stages import Stage
from tests.support.troubled import Troubled

LARGE = "x" * (BLOB_THRESHOLD_BYTES + 1)


def first(times: int, name: str, which: Callable[..., bool] = lambda *_: True) -> Callable[..., bool]:
    """Refuses the first calls of a method."""
    refusals = [times]

    def refuses(method: str, *args: Any) -> bool:
        if method != name or not refusals[0] or not which(*args):
            return False
        refusals[0] -= 1
        return True

    return refuses


def settles(key: object, change: Change, *_: object) -> bool:
    return not change.serialised


def desk_with(desk: Desk, **ports: Any) -> Desk:
    """The desk of another process, some of whose ports are in trouble."""
    return Desk(desk.stage, Deps(replace(desk.stage.another(), **ports)), desk.topic)


def letters(desk: Desk, group: Group) -> dict[int, str]:
    page = desk.deps.adapters.records.dead(desk.topic, group, None, 100)
    return {letter.offset: letter.reason for _, letter in page}


class Bodies:
    """ports.Blobs of which some are gone, and some cannot be read for a while."""

    def __init__(self, of: Blobs) -> None:
        self._of = of
        self.names: list[str] = []
        self.gone: set[str] = set()
        self.away: set[str] = set()
        self.slow: Callable[[], object] = lambda: None
        self.reads: Counter[str] = Counter()

    def put(self, name: str, body: bytes) -> None:
        self.names.append(name)
        self._of.put(name, body)

    def get(self, name: str) -> bytes | None:
        self.reads[name] += 1
        if name in self.away:
            self.slow()
            raise unavailable("the bucket does not answer")
        return None if name in self.gone else self._of.get(name)


@pytest.fixture
def bodies(stage: Stage) -> Bodies:
    return Bodies(stage.adapters.blobs)


@pytest.fixture
def desk(stage: Stage, bodies: Bodies) -> Desk:
    return desk_with(Desk.at(stage), blobs=cast(Blobs, bodies))


@pytest.mark.parametrize("mode", ["queue", "serial"])
def test_a_body_that_is_gone_is_buried_and_its_neighbours_are_delivered(
    desk: Desk, bodies: Bodies, mode: str
) -> None:
    group = desk.group(mode=mode)
    desk.produce(*(make.draft(LARGE if n == 2 else n, ordering_key=str(n)) for n in range(5)))
    bodies.gone = set(bodies.names)
    assert attempts(desk.receive(group)) == {0: 1, 1: 1, 3: 1, 4: 1}
    assert letters(desk, group) == {2: "UNDECODABLE"}


def test_a_body_that_cannot_be_read_for_a_while_waits_without_an_attempt(desk: Desk, bodies: Bodies) -> None:
    group = desk.group()
    desk.produce(*(make.draft(LARGE if n in (1, 3) else n) for n in range(5)))
    bodies.away = {bodies.names[0]}
    assert attempts(desk.receive(group)) == {0: 1, 2: 1, 3: 1, 4: 1}
    for _ in range(20):
        desk.stage.clock.advance(11 * SECOND_MS)
        assert 1 not in attempts(desk.receive(group, lease=3600))
    bodies.away.clear()
    desk.stage.clock.advance(11 * SECOND_MS)
    (claimed_message,) = desk.receive(group)
    assert (claimed_message.message.offset, claimed_message.attempt) == (1, 1)
    assert claimed_message.message.draft.body == f'"{LARGE}"'.encode()
    assert letters(desk, group) == {}


def test_a_bucket_that_keeps_silent_does_not_take_the_time_of_the_others(desk: Desk, bodies: Bodies) -> None:
    """After some seconds no further body is tried; those that were not come before those that were."""
    group, clock = desk.group(), desk.stage.clock
    desk.produce(*(make.draft(LARGE if n else n) for n in range(6)))
    bodies.away = set(bodies.names[:2])
    bodies.slow = lambda: clock.advance(4 * SECOND_MS)
    assert attempts(desk.receive(group)) == {0: 1}
    assert sum(bodies.reads.values()) == 2
    clock.advance(2 * SECOND_MS)
    assert attempts(desk.receive(group)) == {3: 1, 4: 1, 5: 1}


@pytest.mark.parametrize("is_gone", [True, False])
def test_of_a_batch_that_is_pushed_only_the_unreadable_stays_behind(
    stage: Stage, bodies: Bodies, is_gone: bool
) -> None:
    desk = PushDesk.at(replace(stage, another=lambda: replace(stage.another(), blobs=cast(Blobs, bodies))))
    group = desk.group(payload="batch", batch_size=10)
    desk.subscriber(group, "one")
    desk.produce(*(make.draft(LARGE if n == 2 else n) for n in range(5)))
    (bodies.gone if is_gone else bodies.away).update(bodies.names)
    desk.push()
    assert [sorted(call.offsets) for call in desk.subscribers.calls] == [[0, 1, 3, 4]]
    bodies.away.clear()
    desk.pass_time(15)
    assert letters(desk, group) == ({2: "UNDECODABLE"} if is_gone else {})
    assert [(c.offsets, c.attempts[0][1]) for c in desk.subscribers.calls[1:]] == (
        [] if is_gone else [((2,), 1)]
    )


def troubled_push(
    stage: Stage, predicate: Callable[..., bool], **mode: Any
) -> tuple[PushDesk, Group, Troubled]:
    cursors = Troubled(stage.adapters.cursors, predicate)
    adapters = replace(stage.another(), cursors=cast(Cursors, cursors))
    desk = PushDesk.at(replace(stage, another=lambda: adapters))
    group = desk.group(**mode)
    desk.subscriber(group, "one")
    return desk, group, cursors


@pytest.mark.parametrize("mode", ["queue", "serial"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_settlement_that_is_refused_for_a_while_is_made_up_for(stage: Stage, mode: str, times: int) -> None:
    desk, group, cursors = troubled_push(stage, first(times, "write", settles), mode=mode)
    desk.produce(*make.drafts(3, ordering_key="k"))
    desk.push()
    assert cursors.refused == times
    assert [n for call in desk.subscribers.calls for n in call.offsets] == [0, 1, 2]
    status = desk.deps.surveyor.exact_group(desk.topic, group)
    assert (status.backlog, status.in_flight) == (0, 0)


def test_what_could_not_be_settled_in_all_its_time_comes_again_when_its_lease_ends(stage: Stage) -> None:
    """No sweep is needed for it: the next run leaves a timer."""
    trouble = [True]
    desk, group, _ = troubled_push(
        stage, lambda name, *args: bool(trouble[0] and name == "write" and settles(*args)), mode="serial"
    )
    desk.produce(*make.drafts(2))
    desk.deps.waker.wake_group(desk.topic, group)
    with pytest.raises(Unavailable):
        desk.run()
    assert [call.offsets for call in desk.subscribers.calls] == [(0,), (1,)], "both in one run"
    trouble.clear(), trouble.append(False)  # type: ignore[func-returns-value]
    desk.restart()
    (job,) = desk.deps.waker.tasks_of(desk.topic, group)
    desk.deps.dispatcher.deliver(job, lambda: 60.0)  # as an asynchronous invocation is repeated
    assert len(desk.subscribers.calls) == 2
    (deadline_ms,) = [lease.deadline_ms for lease in desk.cursor(group).leases.values()]
    while stage.clock.now_ms() < deadline_ms + SECOND_MS:
        stage.clock.advance(SECOND_MS)
        desk.deps.mover.run_once()
        desk.run()
    assert [call.offsets for call in desk.subscribers.calls[2:]] == [(0,), (1,)]
    assert desk.deps.surveyor.exact_group(desk.topic, group).backlog == 0


def test_a_trace_that_cannot_be_written_spoils_neither_claim_nor_settlement(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    consumer = desk.consumer(group, "a")
    desk.produce(*make.drafts(2))
    away: list[str] = []
    control = Troubled(stage.adapters.control, lambda name, *_: name in away)
    traces = Troubled(stage.adapters.traces, lambda name, *_: name == "write")
    other = desk_with(desk, control=control, traces=traces)
    messages = other.receive(group, 1, consumer, lease=1)
    stage.clock.advance(SECOND_MS + 500)
    again = [each for _ in range(2) for each in other.receive(group, 10, consumer, lease=60)]
    assert attempts(again) == {0: 2, 1: 1}, "the lapsed attempt is noted by this claim"
    stage.clock.advance(4 * SECOND_MS)
    away += ["consumers", "assignment"]
    assert other.ack(group, [*messages, *again]) == ["RECEIPT_STALE", None, None]


def test_a_clock_that_is_fast_makes_a_second_attempt_never_a_second_success(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(2))
    messages = desk.receive(group, lease=30)
    stage.clock.advance(26 * SECOND_MS)
    fast = desk_with(desk, clock=ManualClock(stage.clock.now_ms() + 5 * SECOND_MS))
    again = [*fast.receive(group, lease=30), *fast.receive(group, lease=30)]
    assert attempts(again) == {0: 2, 1: 2}
    assert desk.ack(group, messages) == ["RECEIPT_STALE"] * 2, "whoever was overtaken is told so"
    assert desk.extend(group, messages, 30) == ["RECEIPT_STALE"] * 2
    assert fast.ack(group, again) == [None] * 2


@pytest.mark.parametrize("method", ["topic", "group", "consumers"])
@pytest.mark.parametrize("is_under_way", [False, True])
def test_what_a_subscriber_took_is_settled_though_settings_cannot_be_read_by_then(
    stage: Stage, method: str, is_under_way: bool
) -> None:
    """Whether the run has a result by then, or was woken before."""
    desk = PushDesk.at(stage)
    group = desk.group()
    control: Any = Troubled(
        desk.deps.adapters.control, lambda name, *_: name == method and bool(desk.subscribers.calls)
    )
    dispatcher = Deps(replace(desk.deps.adapters, control=control)).dispatcher
    task = DispatchTask(desk.topic.name, group.name)

    def takes_longer_than_settings_are_cached(_: PushBatch) -> CallResult:
        desk.stage.clock.advance(CACHE_MS + 1)
        if is_under_way:
            assert dispatcher.deliver(task, lambda: 600.0).verdicts == {}, "another is at work"
        return CallResult(Verdict.DONE)

    desk.subscriber(group, "one", behaviour=takes_longer_than_settings_are_cached)
    desk.produce(make.draft())
    with pytest.raises(Unavailable):
        dispatcher.deliver(task, lambda: 600.0)
    assert (desk.cursor(group).next, desk.cursor(group).leases) == (1, {})


class OneRun:
    """A run that pushes five messages of each of four shards one by one, while reads of the log are refused."""

    def __init__(self, stage: Stage, refuses: Callable[[ShardKey], bool]) -> None:
        desk = PushDesk.at(stage, shards=4)
        group = desk.group(max_in_flight=1)
        desk.subscriber(group, "one", behaviour=self._takes)
        for shard in range(4):
            desk.produce(*make.drafts(5, shard=shard))
        log: Any = Troubled(desk.deps.adapters.log, lambda name, *of: name == "read" and refuses(of[0]))
        self._dispatcher = Deps(replace(desk.deps.adapters, log=log)).dispatcher
        self._task = DispatchTask(desk.topic.name, group.name)
        self.pushed: Counter[int] = Counter()

    def _takes(self, push_batch: PushBatch) -> CallResult:
        self.pushed.update(attempt.message.shard for attempt in push_batch.attempts)
        return CallResult(Verdict.DONE)

    def run(self) -> None:
        self._dispatcher.deliver(self._task, lambda: 600.0)


def test_a_shard_that_cannot_be_read_stops_no_other_one_of_its_run(stage: Stage) -> None:
    one = OneRun(stage, lambda key: key.shard == 1)
    with pytest.raises(Unavailable):
        one.run()
    assert one.pushed == {0: 5, 2: 5, 3: 5}


def test_i10_a_run_that_could_not_read_one_shard_comes_back_to_another_in_time(stage: Stage) -> None:
    """What is due there in a moment does not wait for the repetition of the run, or a sweep."""
    desk = PushDesk.at(stage, shards=2)
    group = desk.group(mode="serial", max_in_flight=1, retry=Retry(3, (2,), jitter=0.0))
    desk.subscriber(group, "one", behaviour=fails(1))
    desk.produce(make.draft(ordering_key="k", shard=0))
    desk.produce(make.draft(ordering_key="k", shard=1))
    log: Any = Troubled(desk.deps.adapters.log, lambda name, *of: name == "read" and of[0].shard == 1)
    refused = Deps(replace(desk.deps.adapters, log=log))
    with pytest.raises(Unavailable):
        refused.dispatcher.deliver(DispatchTask(desk.topic.name, group.name), lambda: 600.0)
    assert len(desk.subscribers.calls) == 1
    desk.stage.clock.advance(2 * SECOND_MS)
    desk.deps.mover.run_once()
    desk.run()
    assert next(iter(desk.subscribers.numbers().values())) == [1, 2]


def test_a_run_without_time_that_could_not_read_one_shard_is_followed_by_one_run(stage: Stage) -> None:
    """A function that fails is run again by Lambda: beside the run that was started, and so on with each of them."""
    desk = PushDesk.at(stage, shards=2)
    group = desk.group(max_in_flight=1)  # few slots: one run has both shards
    desk.subscriber(group, "one")
    desk.produce(make.draft(shard=0), make.draft(shard=1))
    desk.inbox.asked.clear()
    log: Any = Troubled(desk.deps.adapters.log, lambda name, *of: name == "read" and of[0].shard == 1)
    refused = Deps(replace(desk.deps.adapters, log=log))
    task = DispatchTask(desk.topic.name, group.name)
    report = refused.dispatcher.deliver(
        task, lambda: 1.0 if log.refused and desk.subscribers.calls else 600.0
    )
    assert len(desk.subscribers.calls) == 1
    assert not report.finished
    assert [function for function, _ in desk.inbox.asked] == ["deliver"]
