"""A message pushed to a subscriber: every attempt is counted, nothing is early, nothing is lost, in each mode."""

from __future__ import annotations

import pytest

from chalicelib.domain.call_result import CallResult, Verdict
from chalicelib.domain.ladder import Retry
from chalicelib.domain.times import SECOND_MS
from tests.support import factories as make
from tests.support.push import EXACT, PushDesk, fails
from tests.support.stages import Stage


def test_a_failing_message_does_not_hold_up_the_others(stage: Stage) -> None:
    desk = PushDesk.at(stage, retry=EXACT)
    group = desk.group()
    first, *others = desk.produce(*make.drafts(4))
    desk.subscriber(
        group,
        "one",
        behaviour=lambda p: CallResult(
            Verdict.FAILED if p.attempts[0].message.id == first.id else Verdict.DONE
        ),
    )
    desk.push()
    assert desk.subscribers.numbers() == {p.id: [1] for p in (first, *others)}
    assert desk.deps.surveyor.exact_group(desk.topic, group).backlog == 0
    assert first.offset is not None
    record = desk.deps.adapters.records.get(desk.cursor_key(group), first.offset)
    assert record
    assert (record.status, record.attempts) == ("RETRYING", 1)
    assert record.next_ms == stage.clock.now_ms() + 10 * SECOND_MS


@pytest.mark.parametrize("times", [1, 2, 9])
def test_a_message_that_a_seek_has_put_into_the_lane_twice_holds_nobody_up(stage: Stage, times: int) -> None:
    desk = PushDesk.at(stage, retry=Retry(3, (10,), jitter=0.0))
    group = desk.group()
    desk.subscriber(group, "one", behaviour=fails(times))
    results = desk.produce(*make.drafts(2))
    desk.push()
    stage.clock.advance(1_000)
    desk.seek(group, "earliest")
    desk.push()
    stage.clock.advance(10_000)
    desk.deps.mover.run_once()
    desk.push()
    desk.pass_time(60)
    status = desk.deps.surveyor.exact_group(desk.topic, group)
    assert (status.backlog, status.in_flight, status.retrying) == (0, 0, 0)
    assert status.dead == (len(results) if times == 9 else 0)


def test_i7_in_a_serial_group_a_failed_message_holds_back_its_key_alone(stage: Stage) -> None:
    desk = PushDesk.at(stage, retry=EXACT)
    group = desk.group(mode="serial")
    results = desk.produce(
        *(make.draft({"n": n}, ordering_key=key) for n, key in enumerate(["a", "b", "a", "b", "a"]))
    )
    desk.subscriber(
        group,
        "one",
        behaviour=lambda p: CallResult(
            Verdict.FAILED
            if p.attempts[0].message.id == results[0].id and p.attempts[0].number < 3
            else Verdict.DONE
        ),
    )
    desk.push()
    assert [c.offsets[0] for c in desk.subscribers.calls] == [0, 1, 3]
    desk.pass_time(9)
    assert len(desk.subscribers.calls) == 3
    desk.pass_time(31)
    assert [c.offsets[0] for c in desk.subscribers.calls] == [0, 1, 3, 0, 0, 2, 4]
    assert desk.subscribers.numbers()[results[0].id] == [1, 2, 3]


def test_i8_in_a_broadcast_a_failure_is_tried_again_for_that_consumer_alone(stage: Stage) -> None:
    desk = PushDesk.at(stage, retry=EXACT)
    group = desk.group(mode="broadcast")
    desk.subscriber(group, "good")
    desk.subscriber(group, "bad", behaviour=fails(1))
    (result,) = desk.produce(make.draft())
    desk.push()
    desk.pass_time(11)
    assert sorted((c.target, c.attempts) for c in desk.subscribers.calls) == [
        ("bad", ((result.id, 1),)),
        ("bad", ((result.id, 2),)),
        ("good", ((result.id, 1),)),
    ]
