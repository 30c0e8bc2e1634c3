"""What one run of `deliver` takes on: its group's limit, its workers, a pause, its time, and wake-ups near its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from chalicelib.domain.call_result import CallResult, PushBatch, Verdict
from chalicelib.domain.cursor_transitions import leased_counts
from chalicelib.domain.errors import unavailable
from chalicelib.domain.timer import TimerKind
from chalicelib.services.consume.claim import Claimer
from chalicelib.services.consume.claimant import Claimant
from chalicelib.services.consume.settle import Nack
from chalicelib.services.core.wake import DispatchTask
from chalicelib.services.push.dispatcher import Dispatcher
from chalicelib.store.layout import FRAGMENTS
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.dead_letters import redrive_first
from tests.support.push import EXACT, PushDesk
from tests.support.stages import Stage, embedded_stage
from tests.support.troubled import Counted


@pytest.mark.parametrize("batch_size", [1, 2, 50])
@pytest.mark.parametrize("payload", ["binary", "batch"])
def test_no_more_is_under_way_than_the_group_allows(stage: Stage, payload: str, batch_size: int) -> None:
    desk = PushDesk.at(stage, shards=4)
    group = desk.group(max_in_flight=3, payload=payload, batch_size=batch_size)
    under_way: list[int] = []

    def counts(push_batch: PushBatch) -> CallResult:
        under_way.extend([sum(desk.cursor(group, s).in_flight for s in range(4))] * len(push_batch.attempts))
        return CallResult(Verdict.DONE)

    desk.subscriber(group, "one", behaviour=counts)
    desk.produce(*make.drafts(20))
    desk.push()
    assert len(under_way) == 20
    assert max(under_way) <= 3


def test_no_more_of_a_key_is_pushed_at_once_than_key_concurrency_allows(stage: Stage) -> None:
    """First attempts, retries and redriven letters."""
    desk = PushDesk.at(stage, shards=2, retry=EXACT)
    group = desk.group(key_concurrency=2, max_in_flight=20)
    under_way: list[int] = []

    def counts(push_batch: PushBatch) -> CallResult:
        cursors = [desk.cursor(group, s) for s in range(2)]
        under_way.extend(n for each in cursors for unit, n in leased_counts(each).items() if unit)
        (attempt,) = push_batch.attempts
        firsts = {b"0": Verdict.FAILED, b"1": Verdict.REFUSED} if attempt.number == 1 else {}
        return CallResult(firsts.get(attempt.message.draft.body, Verdict.DONE))

    desk.subscriber(group, "one", behaviour=counts)
    desk.produce(*(make.draft(n % 4, ordering_key=f"k{n // 4}") for n in range(12)))
    desk.push()
    assert sum(len(desk.cursor(group, s).waiting) for s in range(2)) == 3, (
        "what failed has not left its cursor"
    )
    assert redrive_first(desk.deps, desk.topic, group, 20) == 3
    desk.push()
    desk.pass_time(11)
    assert sorted(map(len, desk.subscribers.numbers().values())) == [1] * 6 + [2] * 6
    assert max(under_way) == 2


def test_what_waits_for_a_key_that_was_pulled_from_another_source_is_pushed_soon_after(stage: Stage) -> None:
    """A redriven letter and a new message. The end of the pulled one wakes the run of its own source alone."""
    desk = PushDesk.at(stage, shards=2)
    group = desk.group(key_concurrency=1, max_in_flight=1000)
    new = make.draft(ordering_key="a", shard=1)
    puller = Claimant(topic=desk.topic, group=group, lease_seconds=300)
    desk.subscriber(group, "one")
    for held_in, pushed in ((1, 0), (None, 3)):
        desk.produce(new)
        desk.nack(group, desk.receive(group, 1), Nack(dead_letter=True))
        assert redrive_first(desk.deps, desk.topic, group, 9) == 1
        if held_in:
            desk.produce(new)
        (held,) = desk.claim(puller, held_in, 1)
        if not held_in:
            desk.produce(new)
        desk.push()
        calls = len(desk.subscribers.calls)
        assert desk.ack(group, [held]) == [None]
        desk.pass_time(6)
        assert [call.offsets for call in desk.subscribers.calls[calls:]] == [(pushed,)]


def test_i10_with_the_stream_off_the_sweeper_finds_what_waits(empty_stage: Stage) -> None:
    stage = empty_stage
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.subscriber(group, "one")
    (result,) = desk.produce(make.draft())
    desk.inbox.asked.clear()
    desk.pass_time(61)
    assert desk.subscribers.numbers() == {result.id: [1]}


def test_i19_nothing_more_is_claimed_from_other_shards_when_time_is_up(stage: Stage) -> None:
    desk = PushDesk.at(stage, shards=4)
    group = desk.group(max_in_flight=4)
    seconds = [60.0]

    def slow(_: PushBatch) -> CallResult:
        seconds[0] = 10.0
        return CallResult(Verdict.DONE)

    desk.subscriber(group, "one", behaviour=slow)
    desk.produce(*(make.draft(shard=shard) for shard in range(4)))
    report = desk.deps.dispatcher.deliver(DispatchTask(desk.topic.name, group.name), lambda: seconds[0])
    assert not report.finished
    assert len(desk.subscribers.calls) == 1
    assert sum(desk.cursor(group, shard).epoch > 0 for shard in range(4)) == 1
    assert ("deliver", DispatchTask(desk.topic.name, group.name).event()) in desk.inbox.asked


def test_what_is_under_way_when_its_group_is_paused_is_settled_and_nothing_else_begins(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group(max_in_flight=1)

    def pauses(push_batch: PushBatch) -> CallResult:
        desk.deps.admin.pause(desk.topic, group.name, True)
        return CallResult(Verdict.DONE)

    desk.subscriber(group, "one", behaviour=pauses)
    desk.produce(*make.drafts(3))
    desk.push()
    desk.deps.dispatcher.deliver(DispatchTask(desk.topic.name, group.name), lambda: 60.0)
    assert len(desk.subscribers.calls) == 1
    cursor = desk.cursor(group)
    assert (cursor.next, cursor.in_flight, cursor.waiting) == (1, 0, ())


@pytest.mark.parametrize("has_time", [True, False])
def test_i10_what_stands_behind_many_expired_messages_does_not_wait_for_a_sweep(has_time: bool) -> None:
    """They are settled by more writes than one claim makes. Another run follows where time is up by then."""
    desk = PushDesk.at(embedded_stage())
    group = desk.group()
    desk.subscriber(group, "one")
    expires_ms = desk.stage.clock.now_ms() + 1
    for _ in range(46):
        desk.produce(*make.drafts(100, expires_ms=expires_ms))
    desk.stage.clock.advance(1)
    desk.produce(make.draft())
    desk.inbox.asked.clear()
    task = DispatchTask(desk.topic.name, group.name)
    desk.deps.dispatcher.deliver(task, lambda: 60.0 if has_time or not desk.cursor(group).next else 1.0)
    assert len(desk.subscribers.calls) == has_time
    desk.run()
    assert len(desk.subscribers.calls) == 1


class Watched:
    """A claimer that lets something happen when it is asked first, and when it finds a shard empty: at the end."""

    def __init__(
        self, claimer: Claimer, first: Callable[[], object], at_the_end: Callable[[], object]
    ) -> None:
        self._claimer = claimer
        self._first = [first]
        self._when_empty: list[Callable[[], object]] = [at_the_end]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._claimer, name)

    def claim(self, claimant: Claimant, shard: int | None, most: int) -> Any:
        if self._first:
            self._first.pop()()
        claim = self._claimer.claim(claimant, shard, most)
        if claim and not claim.messages and shard is not None and self._when_empty:
            self._when_empty.pop()()
        return claim


def _watched(desk: PushDesk, first: Callable[[], object], at_the_end: Callable[[], object]) -> Dispatcher:
    dispatcher = desk.deps.dispatcher
    claimer = cast(Claimer, Watched(dispatcher.context.claimer, first, at_the_end))
    return replace(dispatcher, context=replace(dispatcher.context, claimer=claimer))


def test_i10_who_is_rung_for_while_it_is_about_to_end_looks_again(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.subscriber(group, "one")
    desk.produce(make.draft())
    job = DispatchTask(desk.topic.name, group.name)

    def rings() -> None:
        desk.produce(make.draft())
        assert dispatcher.deliver(job, lambda: 60.0).verdicts == {}, "another is at work"

    dispatcher = _watched(desk, lambda: None, rings)
    dispatcher.deliver(job, lambda: 60.0)
    assert len(desk.subscribers.calls) == 2


@pytest.mark.parametrize("error", [unavailable(), RuntimeError("a bug")], ids=["refused", "bug"])
def test_i10_a_delivery_that_failed_stands_in_nobodys_way(stage: Stage, error: Exception) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.subscriber(group, "one")
    job = DispatchTask(desk.topic.name, group.name)

    def fail() -> None:
        raise error

    dispatcher = _watched(desk, fail, lambda: None)
    with pytest.raises(type(error)):
        dispatcher.deliver(job, lambda: 60.0)
    desk.produce(make.draft())
    dispatcher.deliver(job, lambda: 60.0)
    assert len(desk.subscribers.calls) == 1


def wakes(desk: PushDesk) -> list[int]:
    """When the runs that have ended come again."""
    timers = [t for n in range(FRAGMENTS) for t in desk.deps.adapters.timers.behind(n, "", 9)]
    return [timer.due_ms for timer in timers if timer.kind is TimerKind.WAKE]


def test_a_run_that_found_no_room_comes_back_when_there_is_some() -> None:
    """Not at once for what has been due already: time does not make room."""
    desk = PushDesk.at(embedded_stage(), mode="serial")
    group = desk.group(max_in_flight=1)
    desk.produce(*(make.draft(ordering_key=key) for key in "ab"))
    _, later = desk.receive(group, 2, desk.subscriber(group, "one"))
    desk.nack(group, [later], Nack(delay_ms=5_000))
    desk.inbox.asked.clear()
    desk.stage.clock.advance(6_000)
    desk.deps.dispatcher.deliver(DispatchTask(desk.topic.name, group.name), lambda: 60.0)
    assert desk.subscribers.calls == []
    assert wakes(desk) == [START_MS + 30_000]


@pytest.mark.parametrize("kind", ["url", "function"])
def test_i7_messages_of_one_key_are_sent_one_after_the_other_and_settled_in_tens(
    stage: Stage, kind: str
) -> None:
    desk = PushDesk.at(stage)
    group = desk.group(mode="serial")
    desk.subscriber(group, "one", kind)
    counted = Counted(desk.deps.adapters.cursors)
    desk.deps = Deps(replace(desk.deps.adapters, cursors=cast(Any, counted)))
    results = desk.produce(*(make.draft(ordering_key="b" if n == 7 else "a") for n in range(51)))
    desk.push()
    assert desk.subscribers.numbers() == {result.id: [1] for result in results}
    of_a = [call.offsets[0] for call in desk.subscribers.calls if call.offsets != (7,)]
    assert of_a == [n for n in range(51) if n != 7]
    assert counted.calls["write"] + counted.calls["create"] <= 8, "one claim, five parts, and the other key"
    cursor = desk.cursor(group)
    assert (cursor.next, cursor.leases, cursor.waiting) == (51, {}, ())


def test_i14_a_run_stops_at_a_failure_and_what_follows_is_not_tried(stage: Stage) -> None:
    desk = PushDesk.at(stage, retry=EXACT)
    group = desk.group(mode="serial")

    def fails_once(push_batch: PushBatch) -> CallResult:
        (attempt,) = push_batch.attempts
        fails = (attempt.message.offset, attempt.number) == (12, 1)
        return CallResult(Verdict.FAILED if fails else Verdict.DONE)

    desk.subscriber(group, "one", behaviour=fails_once)
    desk.produce(*(make.draft(ordering_key="a") for _ in range(15)))
    desk.push()
    assert [call.offsets[0] for call in desk.subscribers.calls] == list(range(13))
    waiting = [(span.start, span.count, span.attempt) for span in desk.cursor(group).waiting]
    assert waiting == [(12, 1, 2), (13, 2, 1)]
    desk.pass_time(11)
    assert [call.attempts[0][1] for call in desk.subscribers.calls[13:]] == [2, 1, 1]


@pytest.mark.parametrize("stops", ["never", "paused", "out of time", "lease lost"])
def test_a_slow_run_keeps_its_lease_and_gives_back_what_it_may_not_send(stage: Stage, stops: str) -> None:
    desk = PushDesk.at(stage)
    group = desk.group(mode="serial")
    seconds = [600.0]

    def slow(push_batch: PushBatch) -> CallResult:
        stage.clock.advance(20_000)
        if push_batch.attempts[0].message.offset == 3 and stops == "paused":
            desk.deps.admin.pause(desk.topic, group.name, True)
        if push_batch.attempts[0].message.offset == 3 and stops == "out of time":
            seconds[0] = 20.0
        if push_batch.attempts[0].message.offset == 3 and stops == "lease lost":
            stage.clock.advance(20_000)
            assert desk.claim(Claimant(topic=desk.topic, group=group, lease_seconds=9, is_called=True), 0, 9)
        return CallResult(Verdict.DONE)

    desk.subscriber(group, "one", behaviour=slow)
    desk.produce(*(make.draft(ordering_key="a") for _ in range(6)))
    report = desk.deps.dispatcher.deliver(DispatchTask(desk.topic.name, group.name), lambda: seconds[0])
    assert [call.offsets[0] for call in desk.subscribers.calls] == list(range(6 if stops == "never" else 4))
    assert report.late == (stops == "lease lost")
    held = {
        offset: n for lease in desk.cursor(group).leases.values() for offset, n in lease.attempts().items()
    }
    assert held == ({3: 2} if stops == "lease lost" else {})
    waiting = [(span.start, span.count, span.attempt) for span in desk.cursor(group).waiting]
    assert waiting == ([] if stops == "never" else [(4, 2, 1)])
