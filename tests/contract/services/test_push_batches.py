"""A batch that a subscriber refuses is cut, until only the bad message is left."""

from __future__ import annotations

from functools import partial

import pytest

from chalicelib.domain.call_result import CallResult, Verdict
from chalicelib.domain.ladder import Retry
from tests.support import factories as make
from tests.support.push import PushDesk, always
from tests.support.stages import Stage


@pytest.mark.parametrize(("size", "calls"), [(8, 9), (64, 17), (100, 21)])
def test_a_batch_with_one_bad_message_is_cut_at_once(stage: Stage, size: int, calls: int) -> None:
    desk = PushDesk.at(stage, retry=Retry(16, (60,), jitter=0.0))
    group = desk.group(batch_size=size, max_in_flight=2 * size, payload="batch")
    results = desk.produce(*make.drafts(size))
    poison = results[size // 2].id
    desk.subscriber(
        group,
        "one",
        behaviour=lambda p: (
            CallResult(Verdict.FAILED, "HTTP 500", 500, is_own_answer=True)
            if poison in [a.message.id for a in p.attempts]
            else CallResult(Verdict.DONE)
        ),
    )
    desk.push()
    assert len(desk.subscribers.calls) == calls
    assert desk.deps.surveyor.exact_group(desk.topic, group).backlog == 0
    for message_id, numbers in desk.subscribers.numbers().items():
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) <= 3
        assert (message_id == poison) <= (len(numbers) == (2 if size == 8 else 3))


def test_a_batch_that_nobody_answered_is_not_cut_at_once_nor_does_a_last_attempt_come_at_once(
    empty_stage: Stage,
) -> None:
    stage = empty_stage
    for attempts, is_own_answer, calls in ((5, False, 1), (2, True, 1), (5, True, 9)):
        desk = PushDesk.at(stage, retry=Retry(attempts, (60,), jitter=0.0))
        group = desk.group(batch_size=8, payload="batch")
        failure = CallResult(Verdict.FAILED, "no", is_own_answer=is_own_answer)
        desk.subscriber(group, "one", behaviour=partial(always, failure))
        desk.produce(*make.drafts(8))
        desk.push()
        assert len(desk.subscribers.calls) == calls


def test_one_bad_message_of_a_batch_ends_up_alone_and_the_others_get_through(stage: Stage) -> None:
    desk = PushDesk.at(stage, retry=Retry(5, (10,), jitter=0.0))
    group = desk.group(batch_size=8, payload="batch")
    results = desk.produce(*make.drafts(8))
    poison = results[5].id
    desk.subscriber(
        group,
        "one",
        behaviour=lambda p: CallResult(
            Verdict.FAILED if poison in [a.message.id for a in p.attempts] else Verdict.DONE
        ),
    )
    desk.push()
    desk.pass_time(120)
    assert len(desk.subscribers.calls[0].offsets) == 8
    assert desk.subscribers.numbers()[poison] == [1, 2, 3, 4, 5]
    assert desk.deps.surveyor.exact_group(desk.topic, group).dead == 1
    others = {p.id for p in results if p.id != poison}
    for message_id in others:
        message = desk.deps.lookup.message(desk.topic, message_id)
        status = desk.deps.statuses.delivery(desk.topic, group, message)
        assert status
        assert status.status == "SUCCESS"
