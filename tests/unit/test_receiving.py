"""How a receive waits, and which of its sources it asks in what order, for how many messages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest

from chalicelib.domain.cursor_write import replacement
from chalicelib.domain.errors import NotFound, Unavailable
from chalicelib.domain.segment import ShardKey
from chalicelib.domain.status import Because
from chalicelib.domain.times import SECOND_MS
from chalicelib.domain.topic import Consumer, Group, cursor_key
from chalicelib.ports.world import Clock
from chalicelib.services.consume.claimant import ClaimedMessage, Received
from chalicelib.services.consume.settle import Nack
from chalicelib.store.cursors import Cursors
from chalicelib.store.log import Log
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import ManualClock
from tests.support.dead_letters import redrive_first
from tests.support.desk import Desk, offsets
from tests.support.stages import embedded_stage
from tests.support.troubled import Counted, Troubled


class Sleeper:
    """ports.Clock of a process during whose sleeps something happens, `events` by the second since it began."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._began_ms = clock.now_ms()
        self.pauses: list[float] = []
        self.events: list[tuple[int, Callable[[], object]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)

    @property
    def seconds(self) -> float:
        return (self._clock.now_ms() - self._began_ms) / SECOND_MS

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._clock.sleep(seconds)
        while self.events and self.events[0][0] <= self.seconds:
            self.events.pop(0)[1]()


class Waiter:
    """A process that waits for messages of a group."""

    def __init__(self, desk: Desk, **adapters: Any) -> None:
        self.clock = Sleeper(desk.stage.clock)
        self._desk = desk
        self.deps = Deps(replace(desk.stage.another(), clock=cast(Clock, self.clock), **adapters))

    def receive(self, group: Group, seconds: float, consumer: Consumer | None = None) -> list[ClaimedMessage]:
        return self.deps.receiver.receive(self._desk.topic, group, consumer, 10, seconds, 30)


def test_a_receive_looks_at_growing_intervals_and_not_longer_than_it_may() -> None:
    desk = Desk.at(embedded_stage())
    waiter = Waiter(desk)
    assert waiter.receive(desk.group(), 5) == []
    assert waiter.clock.seconds == 5
    *pauses, last = waiter.clock.pauses
    assert pauses == pytest.approx([min(0.02 * 1.5**n, 1) for n in range(len(pauses))])
    assert 0 < last <= 1


def test_who_waits_notices_within_seconds_that_the_group_is_paused_and_resumed() -> None:
    desk = Desk.at(embedded_stage())
    group, waiter = desk.group(), Waiter(desk)
    waiter.clock.events = [
        (0, lambda: desk.deps.admin.pause(desk.topic, group.name, True)),
        (4, lambda: desk.produce(make.draft())),
        (8, lambda: desk.deps.admin.pause(desk.topic, group.name, False)),
    ]
    assert offsets(waiter.receive(group, 20)) == [0]
    assert 8 <= waiter.clock.seconds <= 12


def test_who_waits_for_a_group_that_is_made_anew_gets_none_of_the_new_ones_messages() -> None:
    desk = Desk.at(embedded_stage())
    group, waiter = desk.group(), Waiter(desk)

    def replaced() -> None:
        desk.deps.admin.delete_group(desk.topic, group)
        desk.group(mode="broadcast")
        desk.produce(make.draft())

    waiter.clock.events = [(1, replaced)]
    assert waiter.receive(group, 60) == []
    assert waiter.clock.seconds < 12


def test_nothing_is_claimed_for_a_caller_who_has_gone() -> None:
    desk = Desk.at(embedded_stage())
    gone = threading.Event()
    group, waiter = desk.group(), Waiter(desk, is_caller_gone=gone.is_set)
    waiter.clock.events = [(4, gone.set), (4, lambda: desk.produce(make.draft()))]
    assert waiter.receive(group, 20) == []
    assert waiter.clock.seconds < 6
    assert offsets(desk.receive(group)) == [0]


def retrying(desk: Desk, group: Group, count: int) -> None:
    """So many messages that failed once are due in the retry lane."""
    desk.produce(*make.drafts(count))
    assert set(desk.nack(group, desk.receive(group, count), Nack(delay_ms=SECOND_MS))) == {None}
    desk.stage.clock.advance(SECOND_MS)
    assert desk.deps.mover.run_once().moved == count


@pytest.mark.parametrize(("most", "retries"), [(4, 1), (7, 1), (8, 2), (100, 25)])
def test_of_what_is_asked_for_a_quarter_are_retries_while_there_is_anything_new(
    most: int, retries: int
) -> None:
    desk = Desk.at(embedded_stage())
    group = desk.group()
    retrying(desk, group, 30)
    desk.produce(*make.drafts(100))
    for _ in range(1 if most == 100 else 3):
        attempts = [delivery.attempt for delivery in desk.receive(group, most)]
        assert (attempts.count(2), attempts.count(1)) == (retries, most - retries)


def test_a_shard_that_another_thread_claims_from_is_asked_last_and_waited_for() -> None:
    desk = Desk.at(embedded_stage(), shards=2)
    group = desk.group()
    desk.produce(*(make.draft(shard=0) for _ in range(5)))
    claims, goes_on = threading.Event(), threading.Event()

    def is_claimed_slowly(name: str, *_: object) -> bool:
        if name == "write" and not claims.is_set():
            claims.set()
            assert goes_on.wait(20)
        return False

    def is_asked_besides(name: str, shard: ShardKey, *_: object) -> bool:
        if name == "read" and shard.shard == 1 and claims.is_set():
            goes_on.set()
        return False

    adapters = desk.stage.another()
    cursors = cast(Cursors, Troubled(adapters.cursors, is_claimed_slowly))
    log = cast(Log, Troubled(adapters.log, is_asked_besides))
    receiver = Deps(replace(adapters, cursors=cursors, log=log)).receiver
    with ThreadPoolExecutor() as threads:
        first = threads.submit(receiver.receive, desk.topic, group, None, 1, 0, 30)
        assert claims.wait(20)
        second = threads.submit(receiver.receive, desk.topic, group, None, 10, 0, 30)
        assert (offsets(first.result()), offsets(second.result())) == ([0], [1, 2, 3, 4])


@pytest.mark.parametrize("mode", ["queue", "serial", "broadcast"])
def test_nobody_gets_anything_of_a_paused_group_on_any_way(mode: str) -> None:
    desk = Desk.at(embedded_stage(), shards=2, mode=mode)
    group = desk.group()
    one = desk.consumer(group, "one")
    desk.produce(*(make.draft(shard=n % 2) for n in range(4)))
    assert desk.nack(group, desk.receive(group, 2, one), Nack(dead_letter=True)) == [None, None]
    assert redrive_first(desk.deps, desk.topic, group, 9) == 2
    desk.deps.admin.pause(desk.topic, group.name, True)
    group = desk.deps.catalog.group(desk.topic, group.name)
    assert desk.receive(group, 10, one) == []
    assert mode == "broadcast" or desk.receive(group, 10) == []


@pytest.mark.parametrize(("shards", "has_messages", "queries"), [(4, True, 1), (16, True, 0), (16, False, 1)])
def test_cursors_are_read_together_but_those_of_many_shards_only_if_the_first_has_not_enough(
    shards: int, has_messages: bool, queries: int
) -> None:
    desk = Desk.at(embedded_stage(), shards=shards)
    group = desk.group()
    desk.produce(*(make.draft(shard=n) for n in range(shards if has_messages else 0)))
    cursors = Counted(desk.stage.adapters.cursors)
    deps = Deps(replace(desk.stage.another(), cursors=cast(Cursors, cursors)))
    assert len(deps.receiver.receive(desk.topic, group, None, 1, 0, 30)) == has_messages
    assert cursors.calls["of_owner"] == queries
    assert cursors.calls["get"] <= 2, "the lane and the first shard"


def empty(desk: Desk) -> list[ClaimedMessage]:
    return desk.receive(desk.group())


def paused(desk: Desk) -> list[ClaimedMessage]:
    group = desk.group()
    desk.produce(make.draft())
    assert len(desk.receive(group)) == 1
    desk.deps.admin.pause(desk.topic, group.name, True)
    return desk.receive(desk.deps.catalog.group(desk.topic, group.name))


def without_a_shard(desk: Desk) -> list[ClaimedMessage]:
    group = desk.group(mode="serial")
    desk.produce(*make.drafts(3))
    return [desk.receive(group, 10, desk.consumer(group, name)) for name in ("one", "two")][1]


def after_its_part(desk: Desk) -> list[ClaimedMessage]:
    group = desk.group()
    desk.produce(*make.drafts(4))
    one, _ = desk.consumer(group, "one"), desk.consumer(group, "two")
    assert len(desk.receive(group, 10, one)) == 2
    return desk.receive(group, 10, one)


def full(desk: Desk) -> list[ClaimedMessage]:
    group = desk.group()
    desk.produce(*make.drafts(300))
    while received := desk.receive(group, 1):
        pass
    return received


def behind_a_leased_key(desk: Desk) -> list[ClaimedMessage]:
    group = desk.group(mode="serial")
    desk.produce(*(make.draft(ordering_key="k") for _ in range(2)))
    assert len(desk.receive(group, 10)) == 1
    return desk.receive(group, 10)


def leased(desk: Desk) -> list[ClaimedMessage]:
    group = desk.group()
    desk.produce(make.draft())
    assert len(desk.receive(group)) == 1
    return desk.receive(group)


def leased_in_the_lane(desk: Desk) -> list[ClaimedMessage]:
    group = desk.group()
    retrying(desk, group, 1)
    assert len(desk.receive(group)) == 1
    assert desk.receive(group) == []
    return desk.receive(group)  # the lane is not looked at again so soon


REASONS = [
    (empty, Because.EMPTY),
    (paused, Because.PAUSED),
    (without_a_shard, Because.NOT_OWNER),
    (after_its_part, Because.NOT_OWNER),
    (full, Because.CURSOR_FULL),
    (behind_a_leased_key, Because.KEYS_WAIT),
    (leased, Because.IN_FLIGHT),
    (leased_in_the_lane, Because.IN_FLIGHT),
]


@pytest.mark.parametrize(("receive", "because"), REASONS, ids=[how.__name__ for how, _ in REASONS])
def test_an_empty_receive_says_why(receive: Callable[[Desk], list[ClaimedMessage]], because: Because) -> None:
    received = cast(Received, receive(Desk.at(embedded_stage())))
    assert (received, received.because) == ([], because)


def test_a_receive_that_has_acknowledged_says_so_though_its_group_is_deleted_while_it_waits() -> None:
    desk = Desk.at(embedded_stage())
    group, waiter = desk.group(), Waiter(desk)
    desk.produce(make.draft())
    acks = waiter.deps.settler.acks(desk.topic, group, desk.receipts(desk.receive(group)))
    waiter.clock.events = [(1, lambda: desk.deps.admin.delete_group(desk.topic, group))]
    receive = partial(waiter.deps.receiver.receive, desk.topic, group, None, 1, 20, 30)
    assert (receive(acks=acks), acks.answers) == ([], [None])
    with pytest.raises(NotFound):
        receive()


MARK = "0123abcd"


def marked(desk: Desk, group: Group, most: int, *, may_be_repeat: bool, mark: str = MARK) -> Received:
    """A receive with a mark, in another process."""
    receiver = desk.stage.process().receiver
    return receiver.receive(desk.topic, group, None, most, 0, 30, mark, may_be_repeat=may_be_repeat)


def test_a_repeated_receive_gets_the_same_messages_from_shards_and_lane_while_their_leases_run() -> None:
    desk = Desk.at(embedded_stage(), shards=3)
    group = desk.group()
    retrying(desk, group, 2)
    desk.produce(*(make.draft(shard=n % 3) for n in range(30)))
    first = marked(desk, group, 12, may_be_repeat=True)
    assert len(first) == 12
    desk.stage.clock.advance(SECOND_MS)
    for _ in range(2):
        repeat = marked(desk, group, 12, may_be_repeat=True)
        assert {r.receipt: (r.attempt, r.message) for r in repeat} == {
            r.receipt: (r.attempt, r.message) for r in first
        }
    others = marked(desk, group, 12, may_be_repeat=True, mark="0123abce")
    assert not {each.receipt.id for each in others} & {each.receipt.id for each in first}
    assert set(desk.ack(group, first[:5])) == {None}
    left = marked(desk, group, 12, may_be_repeat=True)
    assert {each.receipt for each in left} == {each.receipt for each in first[5:]}
    desk.stage.clock.advance(30 * SECOND_MS)
    again = marked(desk, group, 100, may_be_repeat=True)
    assert not {each.receipt.token for each in again} & {each.receipt.token for each in first}


def test_a_repeat_finds_what_a_try_that_still_waits_gets() -> None:
    desk = Desk.at(embedded_stage(), shards=2)
    group, waiter = desk.group(), Waiter(desk)

    def first_try_gets_one() -> None:
        desk.produce(make.draft(shard=0), make.draft(shard=1))
        assert len(marked(desk, group, 1, may_be_repeat=False)) == 1

    waiter.clock.events = [(3, first_try_gets_one)]
    received = waiter.deps.receiver.receive(desk.topic, group, None, 1, 20, 30, MARK, may_be_repeat=True)
    assert [each.receipt for each in received] == [
        each.receipt for each in marked(desk, group, 1, may_be_repeat=True)
    ]
    assert len(desk.receive(group, 10)) == 1


def test_a_claim_whose_answer_is_lost_does_not_take_the_lease_of_another_try_for_its_own() -> None:
    desk = Desk.at(embedded_stage())
    group = desk.group()
    desk.produce(*make.drafts(5))
    first: list[Received] = []

    def is_overtaken(name: str, *_: object) -> bool:
        if name == "write" and not first:
            first.append(marked(desk, group, 1, may_be_repeat=False))
            return True
        return False

    cursors = cast(Cursors, Troubled(desk.stage.adapters.cursors, is_overtaken))
    receiver = Deps(replace(desk.stage.another(), cursors=cursors)).receiver
    with pytest.raises(Unavailable):
        receiver.receive(desk.topic, group, None, 2, 0, 30, MARK)
    repeat = receiver.receive(desk.topic, group, None, 2, 0, 30, MARK, may_be_repeat=True)
    assert [each.receipt for each in repeat] == [each.receipt for each in first[0]]


def failing(desk: Desk, shards: Collection[int]) -> tuple[Desk, Troubled]:
    """A process for which the cursors of these shards fail, and with them a query of all."""

    def fails(name: str, key: Any, *_: object) -> bool:
        if name == "of_owner":
            return bool(shards)
        return name == "get" and key.shard.topic == desk.topic.name and key.shard.shard in shards

    cursors = Troubled(desk.stage.adapters.cursors, fails)
    deps = Deps(replace(desk.stage.another(), cursors=cast(Cursors, cursors)))
    return Desk(desk.stage, deps, desk.topic), cursors


@pytest.mark.parametrize("failing_shard", range(3))
def test_what_the_other_shards_granted_is_not_lost_to_the_one_that_fails(failing_shard: int) -> None:
    desk = Desk.at(embedded_stage(), shards=3)
    group = desk.group()
    desk.produce(*(make.draft(shard=n) for n in range(3)))
    other, _ = failing(desk, {failing_shard})
    messages = other.receive(group)
    assert {each.message.shard for each in messages} == {0, 1, 2} - {failing_shard}


@pytest.mark.parametrize(("lost", "granted"), [(9, [0]), (10, [0]), (11, [])])
def test_a_receive_tries_again_ten_times_where_others_are_faster(lost: int, granted: list[int]) -> None:
    desk = Desk.at(embedded_stage())
    group = desk.group()
    desk.produce(make.draft())
    key = cursor_key(desk.topic, group, 0)
    writes: list[int] = []

    def is_slower(name: str, *_: object) -> bool:
        if name == "write" and (len(writes) < lost):
            writes.append(1)
            state = desk.deps.states.read(key)
            after = replace(state.cursor, epoch=state.cursor.epoch + 1)
            assert desk.deps.states.write(key, state, replacement(state.cursor, after))
        return False

    cursors = cast(Cursors, Troubled(desk.stage.adapters.cursors, is_slower))
    other = Desk(desk.stage, Deps(replace(desk.stage.another(), cursors=cursors)), desk.topic)
    assert offsets(other.receive(group)) == granted
    assert len(writes) == lost
