"""What the simulation has found, each as a short test."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from chalicelib.domain.times import SECOND_MS
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import Inline, ManualClock
from tests.support.push import PushDesk
from tests.support.stages import Stage


@dataclass
class Busy(Inline):
    """Threads that become free late."""

    clock: ManualClock
    seconds: float

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.clock.sleep(self.seconds)
        return super().submit(work, *args, **kwargs)


def test_i6_an_attempt_does_not_begin_when_it_waited_so_long_for_a_thread_that_its_lease_may_end_first(
    stage: Stage,
) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.subscriber(group, "one")
    (result,) = desk.produce(make.draft())
    busy = Deps(replace(desk.deps.adapters, threads=lambda: Busy(stage.clock, 6)))
    (job,) = desk.deps.waker.tasks_of(desk.topic, group)
    end_ms = stage.clock.now_ms() + 40 * SECOND_MS
    busy.dispatcher.deliver(job, lambda: (end_ms - stage.clock.now_ms()) / 1000)
    assert desk.subscribers.calls == []
    desk.pass_time(61)
    assert desk.subscribers.numbers() == {result.id: [1]}


def test_i19_an_attempt_does_not_begin_when_the_claim_took_what_time_the_function_had(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.subscriber(group, "one")
    (result,) = desk.produce(make.draft())
    (job,) = desk.deps.waker.tasks_of(desk.topic, group)
    answers = iter((40.0, 40.0))  # as the run begins, and before it claims
    desk.deps.dispatcher.deliver(job, lambda: next(answers, 3.0))
    assert desk.subscribers.calls == []
    desk.pass_time(61)
    assert desk.subscribers.numbers() == {result.id: [1]}


def test_i15_a_message_that_expired_untried_and_is_redriven_ends_with_its_first_success(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.produce(make.draft(expires_ms=stage.clock.now_ms() + SECOND_MS))
    stage.clock.sleep(2)
    assert desk.receive(group) == []
    stage.clock.sleep(-2)  # the next process has another clock
    desk.restart()
    ((_, letter),) = desk.deps.adapters.records.dead(desk.topic, group, None, 10)
    assert desk.deps.dead_letters.redrive(desk.topic, group, [letter]) == 1
    assert desk.drain(group) == [0]
    status = desk.deps.surveyor.exact_group(desk.topic, group)
    assert (status.backlog, status.retrying, status.dead) == (0, 0, 0)
