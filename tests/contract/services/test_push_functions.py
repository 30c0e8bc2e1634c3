"""A Lambda function as a subscriber is never called beside itself, nor beyond the run that called it."""

from __future__ import annotations

import pytest

from chalicelib.domain.call_result import CallResult, PushBatch, Verdict
from chalicelib.domain.ladder import Retry
from chalicelib.domain.times import SECOND_MS
from chalicelib.services.core.wake import DispatchTask
from tests.support import factories as make
from tests.support.push import PushDesk
from tests.support.stages import Stage


class Died(BaseException):
    """The process ends here: nothing handles this."""


@pytest.mark.parametrize("mode", ["queue", "serial"])
@pytest.mark.parametrize(("timeout_seconds", "busy_seconds"), [(None, 910), (120, 130)])
def test_i4_a_function_is_not_called_beside_itself(
    stage: Stage, mode: str, timeout_seconds: int | None, busy_seconds: int
) -> None:
    desk = PushDesk.at(stage, retry=Retry(3, (1,), jitter=0.0), shards=1)
    group = desk.group(mode=mode)

    def is_silent(push_batch: PushBatch) -> CallResult:
        return CallResult(Verdict.FAILED, "no answer within 30 s", busy_ms=busy_seconds * SECOND_MS)

    desk.function(group, "slow", timeout_seconds, is_silent)
    start_ms = stage.clock.now_ms()
    first, second = desk.produce(*make.drafts(2))
    desk.push()
    desk.pass_time(4 * busy_seconds)
    times = {
        p.id: [c.at_ms - start_ms for c in desk.subscribers.calls if p.id in c.attempts[0]]
        for p in (first, second)
    }
    assert desk.subscribers.numbers()[first.id] == [1, 2, 3]
    for earlier, later in zip(times[first.id], times[first.id][1:], strict=False):
        assert later - earlier >= busy_seconds * SECOND_MS
    if mode == "serial":  # what the last attempt may still be at work on holds back its unit
        assert times[second.id][0] - times[first.id][-1] >= busy_seconds * SECOND_MS


@pytest.mark.parametrize(("timeout_seconds", "busy_seconds"), [(None, 910), (120, 130)])
def test_i4_a_function_whose_caller_died_is_left_alone_until_it_has_ended(
    empty_stage: Stage, timeout_seconds: int | None, busy_seconds: int
) -> None:
    desk = PushDesk.at(empty_stage)
    group = desk.group()

    def dies(push_batch: PushBatch) -> CallResult:
        raise Died

    desk.function(group, "slow", timeout_seconds, dies)
    (result,) = desk.produce(make.draft())
    with pytest.raises(Died):
        desk.push()
    desk.subscribers.behaviours.clear()
    desk.restart()
    desk.pass_time(busy_seconds)
    assert desk.subscribers.numbers() == {result.id: [1]}
    desk.pass_time(120)
    assert desk.subscribers.numbers() == {result.id: [1, 2]}


def test_i19_no_function_is_called_that_could_outlive_the_run(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.function(group, "slow", 600)
    desk.produce(make.draft())
    answers = iter([900.0, 614.0])
    desk.inbox.asked.clear()
    report = desk.deps.dispatcher.deliver(DispatchTask(desk.topic.name, group.name), lambda: next(answers))
    assert not report.finished
    assert desk.subscribers.calls == []
    assert [function for function, _ in desk.inbox.asked] == ["deliver"], "somebody goes on"
    desk.deps.dispatcher.deliver(DispatchTask(desk.topic.name, group.name), lambda: 900.0)
    assert len(desk.subscribers.calls) == 1
