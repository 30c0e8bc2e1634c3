"""A message pushed to a subscriber: every attempt is counted, nothing is early, nothing is lost, in each mode."""

from __future__ import annotations

import pytest

from chalicelib.domain.call_result import CallResult, PushBatch, Verdict
from chalicelib.domain.ladder import Retry
from chalicelib.domain.times import SECOND_MS
from chalicelib.services.produce.appender import ProduceResult
from tests.support import factories as make
from tests.support.push import EXACT, PushDesk, fails
from tests.support.stages import Stage


def test_i14_a_failed_message_climbs_its_ladder_to_the_second_and_is_then_a_dead_letter(stage: Stage) -> None:
    desk = PushDesk.at(stage, retry=EXACT)
    group = desk.group()
    desk.subscriber(group, "one", behaviour=fails(9))
    (result,) = desk.produce(make.draft({"n": 1}, tag="paid"))
    start_ms = stage.clock.now_ms()
    desk.push()
    desk.pass_time(120)
    times = [(c.at_ms - start_ms) // SECOND_MS for c in desk.subscribers.calls]
    assert times == [0, 10, 40, 100]
    assert desk.subscribers.numbers() == {result.id: [1, 2, 3, 4]}
    ((_, letter),) = desk.deps.adapters.records.dead(desk.topic, group, None, 10)
    assert (letter.reason, letter.attempts, letter.last_error) == ("ATTEMPTS_EXHAUSTED", 4, "HTTP 500")
    assert letter.message.draft.body == b'{"n":1}'
    status = desk.deps.surveyor.exact_group(desk.topic, group)
    assert (status.backlog, status.retrying, status.dead) == (0, 0, 1)


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


@pytest.mark.parametrize("mode", ["queue", "broadcast"])
def test_a_message_is_running_while_an_attempt_is_under_way_the_first_or_a_later_one(
    stage: Stage, mode: str
) -> None:
    desk = PushDesk.at(stage, retry=EXACT, mode=mode)
    group = desk.group()
    results: list[ProduceResult] = []
    states: list[object] = []

    def status(index: int) -> object:
        message = desk.deps.lookup.message(desk.topic, results[index].id)
        delivery_status = desk.deps.statuses.delivery(desk.topic, group, message)
        return delivery_status and (delivery_status.status, delivery_status.attempts)

    def looks(push_batch: PushBatch) -> CallResult:
        number = push_batch.attempts[0].number
        if push_batch.attempts[0].message.id != results[0].id:
            return CallResult(Verdict.FAILED)
        states.append((status(0), status(1) if number > 1 else None))
        return CallResult(Verdict.FAILED if number < 3 else Verdict.DONE)

    desk.subscriber(group, "one", behaviour=looks)
    results += desk.produce(make.draft(1))
    desk.push()
    assert status(0) == ("RETRYING", 1)
    stage.clock.advance(1_000)
    results += desk.produce(make.draft(2))
    desk.push()
    desk.pass_time(39)
    assert states == [
        (("RUNNING", 1), None),
        (("RUNNING", 2), ("RETRYING", 1)),
        (("RUNNING", 3), ("RETRYING", 2)),
    ]
    assert (status(0), status(1)) == (("SUCCESS", 3), ("RETRYING", 2))


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


@pytest.mark.parametrize(("mode", "expected"), [("queue", {""}), ("broadcast", {"new"})])
def test_a_registration_wakes_no_delivery_that_it_does_not_concern(
    stage: Stage, mode: str, expected: set[str]
) -> None:
    desk = PushDesk.at(stage, shards=2)
    group = desk.group(mode=mode)
    desk.subscriber(group, "old")
    new = desk.subscriber(group, "new")
    desk.deps.waker.wake_for(desk.topic, group, new)
    names = {new.uid: "new", "": ""}
    deliveries = [event for function, event in desk.inbox.asked if function == "deliver"]
    assert {names.get(event["consumer_uid"]) for event in deliveries} == expected
    assert len(deliveries) == 2  # workers


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


def test_who_is_gone_is_called_no_more_and_the_message_waits(empty_stage: Stage) -> None:
    stage = empty_stage
    desk = PushDesk.at(stage, retry=EXACT)
    group = desk.group()
    desk.subscriber(group, "one", behaviour=lambda _: CallResult(Verdict.GONE, "HTTP 410", 410))
    (result,) = desk.produce(make.draft())
    desk.push()
    desk.pass_time(300)
    assert desk.subscribers.numbers() == {result.id: [1]}
    desk.subscribers.behaviours.clear()
    desk.subscriber(group, "one")
    desk.pass_time(61)
    assert desk.subscribers.numbers() == {result.id: [1, 2]}
