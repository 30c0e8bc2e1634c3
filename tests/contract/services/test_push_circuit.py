"""A subscriber that fails is left alone for a while; held messages cost no attempt, good ones are not delayed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, cast

import pytest

from chalicelib.domain.call_result import CallResult, PushBatch, Verdict
from chalicelib.domain.ladder import Retry
from chalicelib.services.consume.settle import Nack
from chalicelib.services.core.wake import task_of
from chalicelib.store.control import Control
from tests.support import factories as make
from tests.support.clock import Inline
from tests.support.push import EXACT, PushDesk
from tests.support.rarely import rarely
from tests.support.stages import Stage


def test_i14_what_is_held_costs_no_attempt(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    answers = iter([True, True])
    desk.subscriber(
        group,
        "one",
        behaviour=lambda _: CallResult(Verdict.NOT_ATTEMPTED if next(answers, False) else Verdict.DONE),
    )
    (result,) = desk.produce(make.draft())
    desk.push()
    desk.pass_time(3)
    assert desk.subscribers.numbers() == {result.id: [1, 1, 1]}


def test_i17_messages_that_always_fail_do_not_keep_the_circuit_open_for_others(stage: Stage) -> None:
    desk = PushDesk.at(stage, shards=1, retry=Retry(100, (1,), jitter=0.0))
    bad = {p.id for p in desk.produce(*make.drafts(12))}
    group = desk.group()
    desk.subscriber(
        group,
        "one",
        behaviour=lambda p: CallResult(Verdict.FAILED if p.attempts[0].message.id in bad else Verdict.DONE),
    )
    desk.push()
    good = {p.id for p in desk.produce(*make.drafts(8))}
    desk.pass_time(10)
    assert good <= desk.subscribers.numbers().keys()
    bad.clear()
    desk.pass_time(60)
    assert desk.deps.surveyor.exact_group(desk.topic, group).retrying == 0


def test_i17_requests_that_fail_together_after_others_have_succeeded_beside_them_do_not_open_it(
    stage: Stage,
) -> None:
    """A dozen requests wait for an answer in vain and end together, while hundreds succeed."""
    desk = PushDesk.at(stage, shards=1, retry=Retry(100, (60,), jitter=0.0))
    group = desk.group(max_in_flight=64)
    desk.produce(*make.drafts(32))

    def hang_from_the_twentieth_on(push_batch: PushBatch) -> CallResult:
        stage.clock.advance(1)
        is_late = push_batch.attempts[0].message.offset >= 20
        return CallResult(Verdict.FAILED if is_late else Verdict.DONE)

    desk.subscriber(group, "one", behaviour=hang_from_the_twentieth_on)
    desk.push()
    (consumer,) = desk.deps.catalog.consumers(desk.topic, group)
    assert consumer.open_until_ms is None
    assert len(desk.subscribers.calls) == 32


def test_i10_what_is_due_later_is_not_forgotten_when_what_was_due_first_is_done(stage: Stage) -> None:
    desk = PushDesk.at(stage, mode="serial", shards=1, retry=Retry(5, (1,), jitter=0.0))
    waits = {"soon": [5_000], "late": [10_000, 10_000]}
    message_of = {p.id: key for key in waits for p in desk.produce(make.draft(ordering_key=key))}

    def ask_for_time(push_batch: PushBatch) -> CallResult:
        pauses = waits[message_of[push_batch.attempts[0].message.id]]
        return CallResult(Verdict.FAILED, retry_after_ms=pauses.pop()) if pauses else CallResult(Verdict.DONE)

    desk.subscriber(desk.group(), "one", behaviour=ask_for_time)
    desk.push()
    desk.pass_time(22)
    assert {message_of[i]: numbers for i, numbers in desk.subscribers.numbers().items()} == {
        "soon": [1, 2],
        "late": [1, 2, 3],
    }


def test_i14_an_open_circuit_holds_messages_without_an_attempt_and_closes_again_slowly(stage: Stage) -> None:
    desk = PushDesk.at(stage, retry=Retry(100, (10_000,), jitter=0.0))
    group = desk.group(max_in_flight=4)
    in_flight: list[int] = []
    is_well = False

    def answers(_: PushBatch) -> CallResult:
        if is_well:
            in_flight.append(desk.cursor(group).in_flight)
        return CallResult(Verdict.DONE if is_well else Verdict.FAILED, "HTTP 500")

    desk.subscriber(group, "one", behaviour=answers)
    desk.produce(*make.drafts(40))
    desk.push()
    count = len(desk.subscribers.calls)
    assert 10 <= count < 40
    is_well = True
    desk.pass_time(70)
    assert sorted(o for c in desk.subscribers.calls for o in c.offsets) == list(range(40))
    assert in_flight[:7] == [1, 2, 2, 4, 4, 4, 4]


@pytest.mark.parametrize("bad_of_ten", [9, *rarely(1, 5)])
def test_i17_good_messages_beside_bad_ones_are_as_soon_and_at_their_first_attempt(
    stage: Stage, bad_of_ten: int
) -> None:
    desk = PushDesk.at(stage, retry=Retry(16, (1,), jitter=0.0))
    group = desk.group(max_in_flight=8)
    bad: set[str] = set()
    took_ms: list[int] = []
    produced_ms: dict[str, int] = {}

    def judges(push_batch: PushBatch) -> CallResult:
        (attempt,) = push_batch.attempts
        if attempt.message.id in bad:
            return CallResult(Verdict.FAILED, "HTTP 500", 500, is_own_answer=True)
        took_ms.append(stage.clock.now_ms() - produced_ms[attempt.message.id])
        return CallResult(Verdict.DONE)

    desk.subscriber(group, "one", behaviour=judges)
    for second in range(20):
        results = desk.produce(*(make.draft(f"{second}.{n}") for n in range(10)))
        bad |= {p.id for n, p in enumerate(results) if n < bad_of_ten}
        produced_ms |= {p.id: stage.clock.now_ms() for p in results}
        desk.push()
        desk.pass_time(1)
    assert took_ms == [0] * (10 - bad_of_ten) * 20
    assert {numbers[0] for id, numbers in desk.subscribers.numbers().items() if id not in bad} == {1}


def test_other_processes_hear_of_an_open_circuit(empty_stage: Stage) -> None:
    stage = empty_stage
    desk = PushDesk.at(stage, retry=EXACT)
    group = desk.group()
    desk.subscriber(group, "one", behaviour=lambda _: CallResult(Verdict.FAILED, "no answer"))
    desk.produce(*make.drafts(20))
    desk.push()
    (consumer,) = stage.adapters.control.consumers(desk.topic, group)
    assert consumer.open_until_ms


def test_what_was_redriven_counts_for_the_circuit_like_a_first_attempt(stage: Stage) -> None:
    desk = PushDesk.at(stage, retry=EXACT)
    group = desk.group()
    desk.produce(*make.drafts(20))
    while messages := desk.receive(group, 20):
        desk.nack(group, messages, Nack(dead_letter=True))
    desk.subscriber(group, "one", behaviour=lambda _: CallResult(Verdict.FAILED, "no answer"))
    letters = [each for _, each in desk.deps.adapters.records.dead(desk.topic, group, None, 100)]
    desk.deps.dead_letters.redrive(desk.topic, group, letters)
    desk.pass_time(3)
    assert {number for numbers in desk.subscribers.numbers().values() for number in numbers} == {2}
    (consumer,) = stage.adapters.control.consumers(desk.topic, group)
    assert consumer.open_until_ms


@pytest.mark.parametrize("is_woken", [False, True])
def test_what_ends_while_the_registration_is_written_is_settled_before_the_next_is(
    stage: Stage, is_woken: bool
) -> None:
    """Two requests have ended, and each has something to write there; during the first write a third one ends, perhaps
    after a wake-up."""
    executor = LastEndsLater(3)
    watched = Watched(replace(stage, another=lambda: replace(stage.another(), threads=lambda: executor)))
    answers = iter([Verdict.FAILED, Verdict.DONE, Verdict.DONE])
    watched.desk.subscriber(watched.pushed_group, "one", behaviour=lambda _: CallResult(next(answers)))

    def go_on() -> None:
        if is_woken:
            watched.desk.push()
        executor.end_last()

    watched.before_write = go_on
    watched.desk.produce(*(make.draft() for _ in range(3)))
    watched.desk.push()
    assert watched.in_flight[1:] == [1, 0]  # the first write registers it


@pytest.mark.parametrize(("seconds_left", "notes"), [(60.0, 3), (1.0, 1)])
def test_a_run_leaves_in_time_though_registrations_are_written_slowly(
    stage: Stage, seconds_left: float, notes: int
) -> None:
    """Three subscribers fail for the first time; the first write takes all but so many seconds."""
    watched = Watched(stage)
    desk = watched.desk
    for name in ("one", "two", "three"):
        desk.subscriber(watched.pushed_group, name, behaviour=lambda _: CallResult(Verdict.FAILED))
    desk.produce(*(make.draft() for _ in range(3)))
    desk.deps.waker.route({str(desk.topic.shard_key(0)): None})
    [(_, event)] = desk.inbox.asked
    left = [60.0]
    watched.before_write = lambda: left.__setitem__(0, seconds_left)
    watched.in_flight.clear()
    desk.deps.dispatcher.deliver(task_of(event), lambda: left[0])
    assert len(watched.in_flight) == notes


class Watched:
    """Control data of a desk; before a consumer is written, a test does something, and counts what is in flight."""

    def __init__(self, stage: Stage) -> None:
        self._control = stage.adapters.control
        adapters = replace(stage.another(), control=cast(Control, self))
        self.desk = PushDesk.at(replace(stage, another=lambda: adapters), shards=1, retry=EXACT)
        self.pushed_group = self.desk.group()
        self.before_write: Callable[[], object] = lambda: None
        self.in_flight: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._control, name)

    def put_consumer(self, *args: Any) -> bool:
        self.before_write()
        status = self.desk.deps.surveyor.exact_group(self.desk.topic, self.pushed_group)
        self.in_flight.append(status.in_flight)
        return self._control.put_consumer(*args)


class LastEndsLater(Inline):
    """Of so many pieces of work, the last one is done when a test says so."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._last: Callable[[], object] | None = None

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self._count -= 1
        if self._count:
            return super().submit(work, *args, **kwargs)
        future: Future[Any] = Future()
        self._last = lambda: future.set_result(work(*args, **kwargs))
        return future

    def end_last(self) -> None:
        if self._last:
            self._last()
            self._last = None
