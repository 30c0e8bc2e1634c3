"""Deliveries to subscribers: every attempt counted, nothing early, nothing lost, each mode in its manner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest

from chalicelib.domain.errors import Unavailable, unavailable
from chalicelib.domain.ladder import Retry
from chalicelib.domain.limits import FRAGMENTS
from chalicelib.domain.outcome import Outcome, Parcel, Verdict
from chalicelib.services.consume.claim import Claimant, Claimer
from chalicelib.services.core.wake import DeliveryTask
from chalicelib.services.produce.appender import Placed
from chalicelib.services.push.dispatcher import Dispatcher
from tests.support import factories as make
from tests.support.clock import SECOND_MS
from tests.support.push import PushDesk, fails
from tests.support.stages import Stage

EXACT = Retry(4, (10, 30, 60), jitter=0.0)


def _always(outcome: Outcome, _: Parcel) -> Outcome:
    return outcome


def test_a_message_is_pushed_to_the_subscriber_once_and_settled(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.subscriber(group, "one")
    placed = desk.produce(*make.drafts(3))
    desk.push()
    assert desk.subscribers.numbers() == {p.id: [1] for p in placed}
    assert desk.deps.lookup.group_status(desk.topic, group).backlog == 0
    desk.push()
    assert len(desk.subscribers.calls) == 3


def test_i14_a_failed_message_climbs_its_ladder_to_the_second_and_is_then_a_dead_letter(stage: Stage) -> None:
    desk = PushDesk.at(stage, retry=EXACT)
    group = desk.group()
    desk.subscriber(group, "one", does=fails(9))
    (placed,) = desk.produce(make.draft({"n": 1}, tag="paid"))
    start_ms = stage.clock.now_ms()
    desk.push()
    desk.pass_time(120)
    times = [(c.at_ms - start_ms) // SECOND_MS for c in desk.subscribers.calls]
    assert times == [0, 10, 40, 100]
    assert desk.subscribers.numbers() == {placed.id: [1, 2, 3, 4]}
    ((_, letter),) = desk.deps.adapters.records.dead(desk.topic, group, None, 10)
    assert (letter.reason, letter.attempts, letter.last_error) == ("ATTEMPTS_EXHAUSTED", 4, "HTTP 500")
    assert letter.message.draft.body == b'{"n":1}'
    status = desk.deps.lookup.group_status(desk.topic, group)
    assert (status.backlog, status.retrying, status.dead) == (0, 0, 1)


def test_a_failing_message_does_not_hold_up_the_others(stage: Stage) -> None:
    desk = PushDesk.at(stage, retry=EXACT)
    group = desk.group()
    first, *others = desk.produce(*make.drafts(4))
    desk.subscriber(
        group,
        "one",
        does=lambda p: Outcome(Verdict.FAILED if p.attempts[0].message.id == first.id else Verdict.DONE),
    )
    desk.push()
    assert desk.subscribers.numbers() == {p.id: [1] for p in (first, *others)}
    assert desk.deps.lookup.group_status(desk.topic, group).backlog == 0
    assert first.offset is not None
    record = desk.deps.adapters.records.get(desk.cursor_key(group), first.offset)
    assert record
    assert (record.status, record.attempts) == ("RETRYING", 1)
    assert record.next_ms == stage.clock.now_ms() + 10 * SECOND_MS


@pytest.mark.parametrize("times", [1, 2, 9])
def test_a_message_that_a_seek_has_put_into_the_lane_twice_holds_nobody_up(stage: Stage, times: int) -> None:
    desk = PushDesk.at(stage, retry=Retry(3, (10,), jitter=0.0))
    group = desk.group()
    desk.subscriber(group, "one", does=fails(times))
    placed = desk.produce(*make.drafts(2))
    desk.push()
    stage.clock.advance(1_000)
    desk.seek(group, "earliest")
    desk.push()
    stage.clock.advance(10_000)
    desk.deps.mover.tick(range(FRAGMENTS))
    desk.push()
    desk.pass_time(60)
    status = desk.deps.lookup.group_status(desk.topic, group)
    assert (status.backlog, status.in_flight, status.retrying) == (0, 0, 0)
    assert status.dead == (len(placed) if times == 9 else 0)


def test_a_late_success_is_one(stage: Stage) -> None:
    desk = PushDesk.at(stage, retry=EXACT)
    group = desk.group()
    desk.subscriber(group, "one", does=fails(2))
    (placed,) = desk.produce(make.draft())
    desk.push()
    desk.pass_time(60)
    message = desk.deps.lookup.message(desk.topic, placed.id)
    status = desk.deps.statuses.delivery(desk.topic, group, message)
    assert status
    assert (status.status, status.attempts) == ("SUCCESS", 3)
    assert desk.subscribers.numbers()[placed.id] == [1, 2, 3]


@pytest.mark.parametrize("mode", ["queue", "broadcast"])
def test_a_message_is_running_while_an_attempt_is_under_way_the_first_or_a_later_one(
    stage: Stage, mode: str
) -> None:
    desk = PushDesk.at(stage, retry=EXACT, mode=mode)
    group = desk.group()
    placed: list[Placed] = []
    seen: list[object] = []

    def status(index: int) -> object:
        message = desk.deps.lookup.message(desk.topic, placed[index].id)
        told = desk.deps.statuses.delivery(desk.topic, group, message)
        return told and (told.status, told.attempts)

    def looks(parcel: Parcel) -> Outcome:
        number = parcel.attempts[0].number
        if parcel.attempts[0].message.id != placed[0].id:
            return Outcome(Verdict.FAILED)
        seen.append((status(0), status(1) if number > 1 else None))
        return Outcome(Verdict.FAILED if number < 3 else Verdict.DONE)

    desk.subscriber(group, "one", does=looks)
    placed += desk.produce(make.draft(1))
    desk.push()
    assert status(0) == ("RETRYING", 1)
    stage.clock.advance(1_000)
    placed += desk.produce(make.draft(2))
    desk.push()
    desk.pass_time(39)
    assert seen == [
        (("RUNNING", 1), None),
        (("RUNNING", 2), ("RETRYING", 1)),
        (("RUNNING", 3), ("RETRYING", 2)),
    ]
    assert (status(0), status(1)) == (("SUCCESS", 3), ("RETRYING", 2))


def test_i7_in_a_serial_group_a_failed_message_holds_back_its_key_alone(stage: Stage) -> None:
    desk = PushDesk.at(stage, retry=EXACT)
    group = desk.group(mode="serial")
    placed = desk.produce(
        *(make.draft({"n": n}, ordering_key=key) for n, key in enumerate(["a", "b", "a", "b", "a"]))
    )
    desk.subscriber(
        group,
        "one",
        does=lambda p: Outcome(
            Verdict.FAILED
            if p.attempts[0].message.id == placed[0].id and p.attempts[0].number < 3
            else Verdict.DONE
        ),
    )
    desk.push()
    assert [c.offsets[0] for c in desk.subscribers.calls] == [0, 1, 3]
    desk.pass_time(9)
    assert len(desk.subscribers.calls) == 3
    desk.pass_time(31)
    assert [c.offsets[0] for c in desk.subscribers.calls] == [0, 1, 3, 0, 0, 2, 4]
    assert desk.subscribers.numbers()[placed[0].id] == [1, 2, 3]


def test_a_burial_unblocks_a_serial_unit(stage: Stage) -> None:
    desk = PushDesk.at(stage, retry=Retry(2, (5,), jitter=0.0))
    group = desk.group(mode="serial")
    placed = desk.produce(*make.drafts(2))
    desk.subscriber(
        group,
        "one",
        does=lambda p: Outcome(Verdict.FAILED if p.attempts[0].message.id == placed[0].id else Verdict.DONE),
    )
    desk.push()
    desk.pass_time(6)
    assert [c.offsets[0] for c in desk.subscribers.calls] == [0, 0, 1]


@pytest.mark.parametrize(("mode", "woken"), [("queue", {""}), ("broadcast", {"new"})])
def test_a_registration_wakes_no_delivery_that_it_does_not_concern(
    stage: Stage, mode: str, woken: set[str]
) -> None:
    desk = PushDesk.at(stage, shards=2)
    group = desk.group(mode=mode)
    desk.subscriber(group, "old")
    new = desk.subscriber(group, "new")
    desk.deps.waker.joined(desk.topic, group, new)
    names = {new.uid: "new", "": ""}
    deliveries = [event for function, event in desk.inbox.asked if function == "deliver"]
    assert {names.get(event["consumer_uid"]) for event in deliveries} == woken
    assert len(deliveries) == 2  # workers


def test_i8_in_a_broadcast_a_failure_is_tried_again_for_that_consumer_alone(stage: Stage) -> None:
    desk = PushDesk.at(stage, retry=EXACT)
    group = desk.group(mode="broadcast")
    desk.subscriber(group, "good")
    desk.subscriber(group, "bad", does=fails(1))
    (placed,) = desk.produce(make.draft())
    desk.push()
    desk.pass_time(11)
    assert sorted((c.target, c.attempts) for c in desk.subscribers.calls) == [
        ("bad", ((placed.id, 1),)),
        ("bad", ((placed.id, 2),)),
        ("good", ((placed.id, 1),)),
    ]


def test_what_must_never_be_retried_is_buried_at_once(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.subscriber(group, "one", does=lambda _: Outcome(Verdict.REFUSED, "HTTP 489"))
    desk.produce(make.draft())
    desk.push()
    ((_, letter),) = desk.deps.adapters.records.dead(desk.topic, group, None, 10)
    assert (letter.reason, letter.attempts) == ("REJECTED", 1)


def test_i9_retry_after_is_waited_for_where_it_is_longer_than_the_ladder(stage: Stage) -> None:
    desk = PushDesk.at(stage, retry=EXACT)
    group = desk.group()
    desk.subscriber(
        group,
        "one",
        does=lambda p: (
            Outcome(Verdict.FAILED, "HTTP 429", 429, 45 * SECOND_MS)
            if p.attempts[0].number == 1
            else Outcome(Verdict.DONE)
        ),
    )
    desk.produce(make.draft())
    start_ms = stage.clock.now_ms()
    desk.push()
    desk.pass_time(60)
    assert [c.at_ms - start_ms for c in desk.subscribers.calls] == [0, 45 * SECOND_MS]


def test_who_is_gone_is_called_no_more_and_the_message_waits(empty_stage: Stage) -> None:
    stage = empty_stage
    desk = PushDesk.at(stage, retry=EXACT)
    group = desk.group()
    desk.subscriber(group, "one", does=lambda _: Outcome(Verdict.GONE, "HTTP 410", 410))
    (placed,) = desk.produce(make.draft())
    desk.push()
    desk.pass_time(300)
    assert desk.subscribers.numbers() == {placed.id: [1]}
    desk.subscribers.behaviours.clear()
    desk.subscriber(group, "one")
    desk.pass_time(61)
    assert desk.subscribers.numbers() == {placed.id: [1, 2]}


def test_i14_what_is_held_costs_no_attempt(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    held = iter([True, True])
    desk.subscriber(
        group, "one", does=lambda _: Outcome(Verdict.NOT_ATTEMPTED if next(held, False) else Verdict.DONE)
    )
    (placed,) = desk.produce(make.draft())
    desk.push()
    desk.pass_time(3)
    assert desk.subscribers.numbers() == {placed.id: [1, 1, 1]}


def test_i17_messages_that_always_fail_do_not_keep_the_circuit_open_for_others(stage: Stage) -> None:
    desk = PushDesk.at(stage, shards=1, retry=Retry(100, (1,), jitter=0.0))
    bad = {p.id for p in desk.produce(*make.drafts(12))}
    group = desk.group()
    desk.subscriber(
        group,
        "one",
        does=lambda p: Outcome(Verdict.FAILED if p.attempts[0].message.id in bad else Verdict.DONE),
    )
    desk.push()
    good = {p.id for p in desk.produce(*make.drafts(8))}
    desk.pass_time(10)
    assert good <= desk.subscribers.numbers().keys()
    bad.clear()
    desk.pass_time(60)
    assert desk.deps.lookup.group_status(desk.topic, group).retrying == 0


def test_i10_what_is_due_later_is_not_forgotten_when_what_was_due_first_is_done(stage: Stage) -> None:
    desk = PushDesk.at(stage, mode="serial", shards=1, retry=Retry(5, (1,), jitter=0.0))
    waits = {"soon": [5_000], "late": [10_000, 10_000]}
    message_of = {p.id: key for key in waits for p in desk.produce(make.draft(ordering_key=key))}

    def ask_for_time(parcel: Parcel) -> Outcome:
        left = waits[message_of[parcel.attempts[0].message.id]]
        return Outcome(Verdict.FAILED, retry_after_ms=left.pop()) if left else Outcome(Verdict.DONE)

    desk.subscriber(desk.group(), "one", does=ask_for_time)
    desk.push()
    desk.pass_time(22)
    assert {message_of[i]: numbers for i, numbers in desk.subscribers.numbers().items()} == {
        "soon": [1, 2],
        "late": [1, 2, 3],
    }


def test_i14_an_open_circuit_holds_messages_without_an_attempt_and_closes_again(stage: Stage) -> None:
    desk = PushDesk.at(stage, retry=Retry(100, (10_000,), jitter=0.0))
    group = desk.group(max_in_flight=4)
    works = [False]
    desk.subscriber(
        group, "one", does=lambda _: Outcome(Verdict.DONE if works[0] else Verdict.FAILED, "HTTP 500")
    )
    desk.produce(*make.drafts(40))
    desk.push()
    tried = len(desk.subscribers.calls)
    assert 10 <= tried < 40
    works[0] = True
    desk.pass_time(70)
    assert sorted(o for c in desk.subscribers.calls for o in c.offsets) == list(range(40))


@pytest.mark.many_calls
@pytest.mark.parametrize("bad_of_ten", [1, 5, 9])
def test_i17_good_messages_beside_bad_ones_are_as_soon_and_at_their_first_attempt(
    stage: Stage, bad_of_ten: int
) -> None:
    desk = PushDesk.at(stage, retry=Retry(16, (1,), jitter=0.0))
    group = desk.group(max_in_flight=8)
    bad: set[str] = set()
    took_ms: list[int] = []
    produced_ms: dict[str, int] = {}

    def judges(parcel: Parcel) -> Outcome:
        (attempt,) = parcel.attempts
        if attempt.message.id in bad:
            return Outcome(Verdict.FAILED, "HTTP 500", 500, answered=True)
        took_ms.append(stage.clock.now_ms() - produced_ms[attempt.message.id])
        return Outcome(Verdict.DONE)

    desk.subscriber(group, "one", does=judges)
    for second in range(40):
        placed = desk.produce(*(make.draft(f"{second}.{n}") for n in range(10)))
        bad |= {p.id for n, p in enumerate(placed) if n < bad_of_ten}
        produced_ms |= {p.id: stage.clock.now_ms() for p in placed}
        desk.push()
        desk.pass_time(1)
    assert took_ms == [0] * (10 - bad_of_ten) * 40
    assert {numbers[0] for id, numbers in desk.subscribers.numbers().items() if id not in bad} == {1}


@pytest.mark.parametrize(("answered", "most"), [(False, 18), (True, 18)])
def test_who_is_dead_is_soon_left_alone_and_costs_no_attempts(
    stage: Stage, answered: bool, most: int
) -> None:
    desk = PushDesk.at(stage, retry=Retry(16, (3600,), jitter=0.0))
    group = desk.group(max_in_flight=8)
    desk.subscriber(group, "one", does=lambda _: Outcome(Verdict.FAILED, "no", answered=answered))
    desk.produce(*make.drafts(200))
    desk.push()
    assert len(desk.subscribers.calls) <= most
    desk.pass_time(300)
    assert len(desk.subscribers.calls) <= most + 8 * 7


@pytest.mark.parametrize(("size", "calls"), [(8, 9), (64, 17), (100, 21)])
def test_a_batch_with_one_bad_message_is_cut_at_once(stage: Stage, size: int, calls: int) -> None:
    desk = PushDesk.at(stage, retry=Retry(16, (60,), jitter=0.0))
    group = desk.group(batch_size=size, max_in_flight=2 * size, payload="batch")
    placed = desk.produce(*make.drafts(size))
    poison = placed[size // 2].id
    desk.subscriber(
        group,
        "one",
        does=lambda p: (
            Outcome(Verdict.FAILED, "HTTP 500", 500, answered=True)
            if poison in [a.message.id for a in p.attempts]
            else Outcome(Verdict.DONE)
        ),
    )
    desk.push()
    assert len(desk.subscribers.calls) == calls
    assert desk.deps.lookup.group_status(desk.topic, group).backlog == 0
    for message_id, numbers in desk.subscribers.numbers().items():
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) <= 3
        assert (message_id == poison) <= (len(numbers) == (2 if size == 8 else 3))


def test_a_batch_that_nobody_answered_is_not_cut_at_once_nor_does_a_last_attempt_come_at_once(
    empty_stage: Stage,
) -> None:
    stage = empty_stage
    for attempts, is_answered, calls in ((5, False, 1), (2, True, 1), (5, True, 9)):
        desk = PushDesk.at(stage, retry=Retry(attempts, (60,), jitter=0.0))
        group = desk.group(batch_size=8, payload="batch")
        failed = Outcome(Verdict.FAILED, "no", answered=is_answered)
        desk.subscriber(group, "one", does=partial(_always, failed))
        desk.produce(*make.drafts(8))
        desk.push()
        assert len(desk.subscribers.calls) == calls


def test_one_bad_message_of_a_batch_ends_up_alone_and_the_others_get_through(stage: Stage) -> None:
    desk = PushDesk.at(stage, retry=Retry(5, (10,), jitter=0.0))
    group = desk.group(batch_size=8, payload="batch")
    placed = desk.produce(*make.drafts(8))
    poison = placed[5].id
    desk.subscriber(
        group,
        "one",
        does=lambda p: Outcome(
            Verdict.FAILED if poison in [a.message.id for a in p.attempts] else Verdict.DONE
        ),
    )
    desk.push()
    desk.pass_time(120)
    assert len(desk.subscribers.calls[0].offsets) == 8
    assert desk.subscribers.numbers()[poison] == [1, 2, 3, 4, 5]
    assert desk.deps.lookup.group_status(desk.topic, group).dead == 1
    others = {p.id for p in placed if p.id != poison}
    for message_id in others:
        message = desk.deps.lookup.message(desk.topic, message_id)
        status = desk.deps.statuses.delivery(desk.topic, group, message)
        assert status
        assert status.status == "SUCCESS"


class Died(BaseException):
    """The process ends here: nothing handles this."""


@pytest.mark.many_calls
@pytest.mark.parametrize("mode", ["queue", "serial"])
@pytest.mark.parametrize(("timeout_seconds", "busy_seconds"), [(None, 910), (120, 130)])
def test_i4_a_function_is_not_called_beside_itself(
    stage: Stage, mode: str, timeout_seconds: int | None, busy_seconds: int
) -> None:
    desk = PushDesk.at(stage, retry=Retry(3, (1,), jitter=0.0), shards=1)
    group = desk.group(mode=mode)

    def is_silent(parcel: Parcel) -> Outcome:
        return Outcome(Verdict.FAILED, "no answer within 30 s", busy_ms=busy_seconds * SECOND_MS)

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

    def dies(parcel: Parcel) -> Outcome:
        raise Died

    desk.function(group, "slow", timeout_seconds, dies)
    (placed,) = desk.produce(make.draft())
    with pytest.raises(Died):
        desk.push()
    desk.subscribers.behaviours.clear()
    desk.restarted()
    desk.pass_time(busy_seconds)
    assert desk.subscribers.numbers() == {placed.id: [1]}
    desk.pass_time(120)
    assert desk.subscribers.numbers() == {placed.id: [1, 2]}


def test_i19_no_function_is_called_that_could_outlive_the_run(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.function(group, "slow", 600)
    desk.produce(make.draft())
    left = iter([900.0, 614.0])
    desk.inbox.asked.clear()
    report = desk.deps.deliverer.deliver(DeliveryTask(desk.topic.name, group.name), lambda: next(left))
    assert not report.finished
    assert desk.subscribers.calls == []
    assert [function for function, _ in desk.inbox.asked] == ["deliver"], "somebody goes on"
    desk.deps.deliverer.deliver(DeliveryTask(desk.topic.name, group.name), lambda: 900.0)
    assert len(desk.subscribers.calls) == 1


@pytest.mark.parametrize("batch_size", [1, 2, 50])
@pytest.mark.parametrize("payload", ["binary", "batch"])
def test_no_more_is_under_way_than_the_group_allows(stage: Stage, payload: str, batch_size: int) -> None:
    desk = PushDesk.at(stage, shards=4)
    group = desk.group(max_in_flight=3, payload=payload, batch_size=batch_size)
    under_way: list[int] = []

    def counts(parcel: Parcel) -> Outcome:
        under_way.extend([sum(desk.cursor(group, s).in_flight for s in range(4))] * len(parcel.attempts))
        return Outcome(Verdict.DONE)

    desk.subscriber(group, "one", does=counts)
    desk.produce(*make.drafts(20))
    desk.push()
    assert len(under_way) == 20
    assert max(under_way) <= 3


def test_a_worker_that_there_is_no_more_does_the_work_of_one_that_is_there(stage: Stage) -> None:
    desk = PushDesk.at(stage, shards=4)
    group = desk.group(max_in_flight=4)
    desk.subscriber(group, "one")
    last = DeliveryTask(desk.topic.name, group.name, worker=3)
    desk.group(max_in_flight=1)
    desk.produce(*(make.draft(shard=shard) for shard in range(4)))
    desk.deps.deliverer.deliver(last, lambda: 60.0)
    assert len(desk.subscribers.calls) == 4


def test_i10_with_the_stream_off_the_sweeper_finds_what_waits(empty_stage: Stage) -> None:
    stage = empty_stage
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.subscriber(group, "one")
    (placed,) = desk.produce(make.draft())
    desk.inbox.asked.clear()
    desk.pass_time(61)
    assert desk.subscribers.numbers() == {placed.id: [1]}


def test_a_paused_group_is_left_alone_until_it_goes_on(empty_stage: Stage) -> None:
    stage = empty_stage
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.subscriber(group, "one")
    desk.deps.admin.pause(desk.topic, group.name, True)
    desk.produce(make.draft())
    desk.push()
    desk.pass_time(61)
    assert not desk.subscribers.calls
    desk.deps.admin.pause(desk.topic, group.name, False)
    desk.pass_time(61)
    assert len(desk.subscribers.calls) == 1


def test_i19_nothing_more_is_claimed_from_other_shards_when_time_is_up(stage: Stage) -> None:
    desk = PushDesk.at(stage, shards=4)
    group = desk.group(max_in_flight=4)
    seconds = [60.0]

    def slow(_: Parcel) -> Outcome:
        seconds[0] = 10.0
        return Outcome(Verdict.DONE)

    desk.subscriber(group, "one", does=slow)
    desk.produce(*(make.draft(shard=shard) for shard in range(4)))
    report = desk.deps.deliverer.deliver(DeliveryTask(desk.topic.name, group.name), lambda: seconds[0])
    assert not report.finished
    assert len(desk.subscribers.calls) == 1
    assert sum(desk.cursor(group, shard).epoch > 0 for shard in range(4)) == 1
    assert ("deliver", DeliveryTask(desk.topic.name, group.name).event()) in desk.inbox.asked


def test_what_is_under_way_when_its_group_is_paused_is_settled_and_nothing_else_begins(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group(max_in_flight=1)

    def pauses(parcel: Parcel) -> Outcome:
        desk.deps.admin.pause(desk.topic, group.name, True)
        return Outcome(Verdict.DONE)

    desk.subscriber(group, "one", does=pauses)
    desk.produce(*make.drafts(3))
    desk.push()
    desk.deps.deliverer.deliver(DeliveryTask(desk.topic.name, group.name), lambda: 60.0)
    assert len(desk.subscribers.calls) == 1
    cursor = desk.cursor(group)
    assert (cursor.next, cursor.in_flight, cursor.waiting) == (1, 0, ())


class Watched:
    """A claimer that lets something happen when it is asked first, and when it finds a shard empty for the second time:
    once with something under way, once at the end."""

    def __init__(
        self, claimer: Claimer, first: Callable[[], object], at_the_end: Callable[[], object]
    ) -> None:
        self._claimer = claimer
        self._first = [first]
        self._when_empty: list[Callable[[], object]] = [at_the_end, lambda: None]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._claimer, name)

    def claim(self, claimant: Claimant, shard: int | None, most: int) -> Any:
        if self._first:
            self._first.pop()()
        granted = self._claimer.claim(claimant, shard, most)
        if granted == [] and shard is not None and self._when_empty:
            self._when_empty.pop()()
        return granted


def _watched(desk: PushDesk, first: Callable[[], object], at_the_end: Callable[[], object]) -> Dispatcher:
    deliverer = desk.deps.deliverer
    return replace(deliverer, claimer=cast(Claimer, Watched(deliverer.claimer, first, at_the_end)))


def test_i10_who_is_rung_for_while_it_is_about_to_end_looks_again(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.subscriber(group, "one")
    desk.produce(make.draft())
    job = DeliveryTask(desk.topic.name, group.name)

    def rings() -> None:
        desk.produce(make.draft())
        assert deliverer.deliver(job, lambda: 60.0).outcomes == {}, "another is at work"

    deliverer = _watched(desk, lambda: None, rings)
    deliverer.deliver(job, lambda: 60.0)
    assert len(desk.subscribers.calls) == 2


def test_i10_a_delivery_that_failed_stands_in_nobodys_way(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.subscriber(group, "one")
    desk.produce(make.draft())
    job = DeliveryTask(desk.topic.name, group.name)

    def fail() -> None:
        raise unavailable()

    deliverer = _watched(desk, fail, lambda: None)
    with pytest.raises(Unavailable):
        deliverer.deliver(job, lambda: 60.0)
    deliverer.deliver(job, lambda: 60.0)
    assert len(desk.subscribers.calls) == 1


def test_other_processes_hear_of_an_open_circuit(empty_stage: Stage) -> None:
    stage = empty_stage
    desk = PushDesk.at(stage, retry=EXACT)
    group = desk.group()
    desk.subscriber(group, "one", does=lambda _: Outcome(Verdict.FAILED, "no answer"))
    desk.produce(*make.drafts(20))
    desk.push()
    (consumer,) = stage.adapters.control.consumers(desk.topic, group)
    assert consumer.open_until_ms
