"""Receiver and Settler on both stores: leases, attempts, dead letters, seeks and the three modes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, cast

import pytest

from chalicelib.domain import cursor_size
from chalicelib.domain.ladder import Retry
from chalicelib.domain.limits import MAX_CURSOR_BYTES, MAX_PASSED_OVER
from chalicelib.domain.times import SECOND_MS
from chalicelib.domain.topic import cursor_key
from chalicelib.services.consume.settle import Nack
from chalicelib.services.core.positions import Places
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.amending import Counting
from tests.support.clock import ManualClock
from tests.support.desk import ALREADY, Desk, attempts, offsets, records
from tests.support.stages import Stage, embedded_stage

STALE = "RECEIPT_STALE"


def test_i6_what_was_acknowledged_is_not_delivered_again(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(5))
    messages = desk.receive(group)
    assert offsets(messages) == [0, 1, 2, 3, 4]
    assert desk.ack(group, messages[1:4]) == [None] * 3
    stage.clock.advance(3600 * SECOND_MS)
    assert attempts([*desk.receive(group), *desk.receive(group)]) == {0: 2, 4: 2}


def test_i14_a_lapsed_lease_is_delivered_again_with_the_next_attempt_number(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(make.draft())
    for attempt in (1, 2, 3):
        assert attempts(desk.receive(group, lease=10)) == {0: attempt}
        stage.clock.advance(10 * SECOND_MS - 1)
        assert desk.receive(group) == []
        stage.clock.advance(1)


def test_i5_a_receipt_of_a_lease_that_passed_on_changes_nothing(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(2))
    first = desk.receive(group, lease=10)
    stage.clock.advance(10 * SECOND_MS)
    second = [*desk.receive(group), *desk.receive(group)]
    before = desk.cursor(group)
    assert desk.ack(group, first) == [STALE, STALE]
    assert desk.nack(group, first) == [STALE, STALE]
    assert desk.extend(group, first, 60) == [STALE, STALE]
    assert desk.cursor(group) == before
    assert desk.ack(group, [*second, second[0]]) == [None, None, ALREADY], (
        "the same receipt twice in one call"
    )
    assert desk.ack(group, second) == [ALREADY, ALREADY], "settled once is settled"
    assert desk.ack(group, first) == [STALE, STALE]


def test_i5_racing_acks_of_one_delivery_are_accepted_once(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(8))
    messages = desk.receive(group)
    others = [Desk(stage, stage.process(), desk.topic) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda d: d.ack(group, messages), others))
    for of_one_offset in zip(*answers, strict=True):
        assert sorted(of_one_offset, key=str)[0] is None
        assert set(of_one_offset) <= {None, STALE, ALREADY}, (
            "who comes before the first one's trace is told STALE"
        )
        assert of_one_offset.count(None) == 1


@pytest.mark.parametrize("processes", [1, 2])
def test_i20_the_same_settlement_asked_for_again_is_answered_as_done(stage: Stage, processes: int) -> None:
    """An answer was lost on its way; the client, or its HTTP library, asks again."""
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(6, max_attempts=3))
    messages = desk.receive(group)
    again = desk if processes == 1 else Desk(stage, stage.process(), desk.topic)
    bury, later = Nack(dead_letter=True), Nack(delay_ms=60_000)
    assert desk.ack(group, messages[1:3]) == [None, None]
    assert desk.nack(group, messages[3:4]) == [None]
    assert desk.nack(group, messages[4:5], bury) == [None]
    assert desk.nack(group, messages[5:], later) == [None]
    assert again.ack(group, messages[:3]) == [None, ALREADY, ALREADY]
    assert again.nack(group, messages[3:4]) == [ALREADY]
    assert again.nack(group, messages[4:5], bury) == [ALREADY]
    assert again.nack(group, messages[5:], later) == [ALREADY]
    assert again.ack(group, messages[3:]) == [STALE] * 3, "what was given back or buried was not acknowledged"
    assert again.nack(group, messages[1:4], bury) == [STALE] * 3


def test_i20_a_repeated_ack_is_not_taken_for_a_later_holders(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(2))
    first = desk.receive(group, lease=10)
    assert desk.ack(group, first[:1]) == [None]
    stage.clock.advance(10 * SECOND_MS)
    second = desk.receive(group)
    assert offsets(second) == [1]
    assert desk.ack(group, second) == [None]
    assert desk.ack(group, first) == [ALREADY, STALE]


def test_i4_racing_consumers_never_hold_one_message_twice(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(120))
    others = [Desk(stage, stage.process(), desk.topic) for _ in range(4)]

    def work(desk: Desk) -> list[int]:
        return [o for _ in range(10) for o in offsets(desk.receive(group, 5))]

    with ThreadPoolExecutor(4) as pool:
        offsets_taken = [offset for part in pool.map(work, others) for offset in part]
    assert len(offsets_taken) == len(set(offsets_taken))
    assert sorted([*offsets_taken, *desk.drain(group)]) == list(range(120))


def test_i9_a_message_given_back_with_a_delay_is_not_delivered_before(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(2))
    messages = desk.receive(group)
    assert desk.nack(group, messages[:1], Nack(delay_ms=60_000, reason="busy")) == [None]
    assert desk.nack(group, messages[1:]) == [None]
    assert attempts(desk.receive(group)) == {1: 2}
    stage.clock.advance(59_999)
    assert 0 not in attempts(desk.receive(group))
    stage.clock.advance(501)  # an empty lane is not looked at for half a second
    assert attempts(desk.receive(group))[0] == 2
    assert (records(desk, group)[0].status, records(desk, group)[0].last_error) == ("RETRYING", "busy")


def test_a_seek_goes_to_either_end_an_offset_or_a_time(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    times = []
    for _ in range(5):
        times.append(stage.clock.now_ms())
        desk.produce(*make.drafts(3))
        stage.clock.advance(1_000)
    assert len(desk.drain(group)) == 15
    for where, expected in (
        ("earliest", 0), ("latest", 15), (7, 7), (99, 15), (f"@{times[2]}", 6), (f"@{times[2] + 1}", 9), ("@0", 0),
        (f"@{times[4] + 1}", 15),
    ):  # fmt: skip
        desk.seek(group, where)
        assert desk.drain(group) == list(range(expected, 15)), where


def test_a_seek_to_a_time_leaves_out_nothing_that_stands_before_the_row_of_a_slow_clock(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(make.draft("before"))
    stage.clock.advance(60 * SECOND_MS)
    time_ms = stage.clock.now_ms()
    desk.produce(make.draft("then"))
    slow = ManualClock(time_ms - 10 * SECOND_MS)
    Deps(replace(stage.another(), clock=slow)).producer.produce(desk.topic, make.drafts(1))
    desk.produce(make.draft("later"))
    desk.drain(group)
    desk.seek(group, f"@{time_ms}")
    assert desk.drain(group) == [1, 2, 3]


def test_a_place_is_looked_for_once_for_all_consumers_of_a_broadcast(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group(mode="broadcast")
    consumers = [desk.consumer(group, f"c{n}") for n in range(20)]
    for _ in range(3):
        stage.clock.advance(SECOND_MS)
        desk.produce(*make.drafts(3))
    adapters = stage.another()
    counting = Counting(adapters.log)
    positions = Deps(replace(adapters, log=cast(Any, counting))).positions
    for where, expected in ((f"@{stage.clock.now_ms()}", 6), ("earliest", 0), (4, 4)):
        counting.shards.clear()
        places: Places = {}
        for consumer in consumers:
            positions.seek(desk.topic, cursor_key(desk.topic, group, 0, consumer.uid), where, places)
        assert {desk.cursor(group, 0, consumer.uid).next for consumer in consumers} == {expected}
        assert len(counting.shards) < len(consumers)


def test_i8_a_broadcast_reaches_each_consumer_from_its_registration_on(stage: Stage) -> None:
    desk = Desk.at(stage, shards=2)
    group = desk.group(mode="broadcast")
    desk.produce(*make.drafts(2, shard=0))
    ann = desk.consumer(group, "ann")
    desk.produce(*make.drafts(2, shard=0), make.draft(shard=1))
    bob = desk.consumer(group, "bob")
    desk.produce(make.draft(shard=0))
    assert sorted(desk.drain(group, consumer=ann)) == [0, 2, 3, 4]
    assert sorted(desk.drain(group, consumer=bob)) == [4]


@pytest.mark.parametrize(("offline", "expected"), [("keep", [0, 1]), ("skip", [1])])
def test_a_consumer_that_returns_catches_up_or_skips(stage: Stage, offline: str, expected: list[int]) -> None:
    desk = Desk.at(stage)
    group = desk.group(mode="broadcast", offline=offline)
    ann = desk.consumer(group, "ann")
    desk.produce(make.draft("while away"))
    stage.clock.advance(31 * SECOND_MS)
    ann = desk.deps.registry.heartbeat(desk.topic, group, ann).consumer
    desk.produce(make.draft("back again"))
    assert desk.drain(group, consumer=ann) == expected


@pytest.mark.parametrize("mode", ["queue", "serial"])
@pytest.mark.parametrize("wait_ms", [0, SECOND_MS, 60 * SECOND_MS])
def test_a_new_filter_is_not_for_what_was_tried_before(stage: Stage, mode: str, wait_ms: int) -> None:
    desk = Desk.at(stage, mode=mode)
    group = desk.group()
    desk.produce(*(make.draft(tag="paid", ordering_key=key) for key in ("a", "b")))
    desk.nack(group, desk.receive(group, 1), Nack(wait_ms))
    group = desk.group(tags=("refunded",))
    stage.clock.advance(wait_ms)
    assert [(each.message.draft.ordering_key, each.attempt) for each in desk.receive(group)] == [("a", 2)]


def test_i7_a_failing_key_holds_back_its_own_messages_alone(stage: Stage) -> None:
    desk = Desk.at(stage, mode="serial")
    group = desk.group()
    desk.produce(*(make.draft(ordering_key=key) for key in ("a", "a", "b", None, "b", None)))
    messages = desk.receive(group)
    assert offsets(messages) == [0, 2, 3]
    assert desk.receive(group) == []
    desk.nack(group, messages[:1], Nack(delay_ms=60_000))
    desk.ack(group, messages[1:])
    assert desk.drain(group) == [4, 5]
    stage.clock.advance(60_000)
    again = desk.receive(group)
    assert attempts(again) == {0: 2}
    desk.nack(group, again, Nack(dead_letter=True))
    assert desk.drain(group) == [1], "DEAD unblocks"


def test_i7_a_busy_key_is_skipped_however_many_of_its_messages_wait(stage: Stage) -> None:
    desk = Desk.at(stage, mode="serial")
    group = desk.group()
    busy_count = 9 * MAX_PASSED_OVER
    desk.produce(*make.drafts(busy_count, ordering_key="busy"), make.draft(ordering_key="other"))
    desk.produce(make.draft(ordering_key="busy"), make.draft(ordering_key="third"))
    assert offsets(desk.receive(group)) == [0]
    messages = desk.receive(group)
    assert offsets(messages) == [busy_count, busy_count + 2]
    assert len(desk.cursor(group).waiting) == 2
    desk.ack(group, messages)
    stage.clock.advance(60_000)
    assert desk.drain(group, 1) == [*range(busy_count), busy_count + 1]


def test_a_claim_takes_no_more_than_its_cursor_has_room_for(stage: Stage) -> None:
    """Where order counts, each message of a lease may come back by itself."""
    desk = Desk.at(stage)
    group = desk.group(mode="serial")
    desk.produce(*(make.draft(n, ordering_key=f"k{n}") for n in range(600)))
    messages = desk.receive(group, 600)
    assert 0 < len(messages) < 600
    assert cursor_size.most_bytes(desk.cursor(group)) <= MAX_CURSOR_BYTES
    assert set(desk.ack(group, messages)) == {None}
    assert sorted([*offsets(messages), *desk.drain(group, 600)]) == [*range(600)]


def test_a_full_cursor_is_backpressure_and_ends_when_something_is_settled(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(400))
    claimed_messages = []
    while messages := desk.receive(group, 1, lease=3600):
        claimed_messages += messages
    assert 100 <= len(claimed_messages) <= 200, "as many receives as the cursor has room for"
    assert desk.receive(group, 1000) == []
    assert desk.ack(group, claimed_messages[::2]) == [None] * len(claimed_messages[::2])
    assert len(desk.receive(group, 1000)) == 400 - len(claimed_messages), (
        "one lease holds any number of messages"
    )
    stage.clock.advance(3600 * SECOND_MS)
    assert sorted(desk.drain(group, 1000)) == sorted({*range(400)} - {*offsets(claimed_messages[::2])})


def test_leases_of_a_thousand_settled_in_any_order_stay_small(stage: Stage) -> None:
    """With what is given back among them, and without losing a message."""
    desk = Desk.at(stage)
    group = desk.group()
    for _ in range(4):
        desk.produce(*make.drafts(1000))
    leases = [desk.receive(group, 1000, lease=3600) for _ in range(4)]
    for n, lease in enumerate(leases):
        assert set(desk.ack(group, lease[n % 2 :: 2])) == {None}
        assert set(desk.nack(group, lease[1 - n % 2 :: 8])) == {None}
        assert cursor_size.most_bytes(desk.cursor(group)) <= MAX_CURSOR_BYTES
    stage.clock.advance(4 * 3600 * SECOND_MS)
    assert desk.deps.surveyor.exact_group(desk.topic, group).backlog == 2000
    given_back = desk.receive(group, 1000)
    assert (len(given_back), set(desk.ack(group, given_back))) == (500, {None})
    alone = [desk.receive(group, 1000) for _ in range(5)]
    assert [desk.ack(group, each) for each in alone] == [[None]] * 5, "what was leased comes one by one"
    assert desk.deps.surveyor.exact_group(desk.topic, group).backlog == 2000 - 500 - 5


def test_a_receive_waits_as_long_as_it_was_asked_to_though_the_clock_is_set_back() -> None:
    stage = embedded_stage()
    clock = SetBack()
    desk = Desk.at(replace(stage, another=lambda: replace(stage.another(), clock=clock)))
    assert desk.deps.receiver.receive(desk.topic, desk.group(), None, 10, 20, 30) == []
    assert clock.slept_seconds == pytest.approx(20, abs=0.1)


class SetBack(ManualClock):
    """Set back an hour at the first pause."""

    slept_seconds = 0.0

    def sleep(self, seconds: float) -> None:
        if not self.slept_seconds:
            self.advance(-3600 * SECOND_MS)
        self.slept_seconds += seconds
        self.advance(round(seconds * SECOND_MS))

    def monotonic_ms(self) -> int:
        return round(self.slept_seconds * SECOND_MS)


def keyed(desk: Desk, keys: str) -> None:
    desk.produce(*(make.draft(ordering_key=None if key == "-" else key) for key in keys))


def test_i7_a_run_is_settled_in_its_order_and_gives_back_what_follows(stage: Stage) -> None:
    desk = Desk.at(stage, mode="serial")
    group = desk.group()
    keyed(desk, "aabaaab-a")
    run = desk.receive_run(group, 5)
    assert attempts(run) == {0: 1, 1: 1, 3: 1, 4: 1, 5: 1}
    assert attempts(desk.receive_run(group)) == {2: 1, 6: 1}, "the other keys go on"
    assert attempts(desk.receive_run(group)) == {7: 1}
    assert desk.receive_run(group) == []
    assert desk.ack(group, [run[1], run[3], run[0]]) == [None, "RUN_OUT_OF_ORDER", None]
    assert desk.ack(group, run[:2]) == [ALREADY, ALREADY]
    assert desk.nack(group, run[3:4]) == ["RUN_OUT_OF_ORDER"]
    assert desk.nack(group, run[2:4], Nack(delay_ms=5_000)) == [None, None]
    assert desk.ack(group, run[4:]) == [STALE]
    assert desk.receive_run(group) == [], "the first of its key waits for its time"
    stage.clock.advance(5_000)
    again = desk.receive_run(group)
    assert attempts(again) == {3: 2, 4: 1, 5: 1, 8: 1}, "what follows was not tried"
    assert desk.nack(group, again[:1], Nack(dead_letter=True)) == [None]
    rest = desk.receive_run(group)
    assert attempts(rest) == {4: 1, 5: 1, 8: 1}
    assert desk.nack(group, [rest[0], rest[2]], Nack(dead_letter=True)) == [None, "RUN_OUT_OF_ORDER"]
    assert desk.ack(group, desk.receive_run(group)) == [None, None]
    assert [record.status for record in records(desk, group).values()] == ["DEAD"] * 2


def test_i14_of_a_run_whose_lease_ends_the_first_unsettled_message_alone_was_tried(stage: Stage) -> None:
    desk = Desk.at(stage, mode="serial", retry=Retry(2, (1,)))
    group = desk.group()
    keyed(desk, "aaaab")
    run = desk.receive_run(group, lease=10)
    assert desk.extend(group, run, 20) == [None] * 4
    stage.clock.advance(15_000)
    assert desk.ack(group, run[:1]) == [None]
    stage.clock.advance(10_000 - 1)
    other = desk.receive_run(group)
    assert attempts(other) == {4: 1}, "a part that is settled moves the deadline by the lease"
    assert desk.ack(group, other) == [None]
    stage.clock.advance(1)
    assert attempts(desk.receive_run(group)) == {1: 2}, "it comes alone, for it may have ended its consumer"
    stage.clock.advance(30 * SECOND_MS)
    assert attempts(desk.receive_run(group)) == {2: 1, 3: 1}, "behind a dead letter"
    ((offset, record),) = records(desk, group).items()
    assert (offset, record.status, record.attempts) == (1, "DEAD", 2)


def test_a_run_skips_what_its_group_does_not_get(stage: Stage) -> None:
    desk = Desk.at(stage, mode="serial")
    group = desk.group(tags=("y",))
    desk.produce(*(make.draft(ordering_key="a", tag=tag) for tag in "yxyxy"))
    run = desk.receive_run(group)
    assert offsets(run) == [0, 2, 4]
    assert desk.nack(group, run, Nack(untried=True)) == [None] * 3
    assert attempts(desk.receive_run(group, 2)) == {0: 1, 2: 1}
