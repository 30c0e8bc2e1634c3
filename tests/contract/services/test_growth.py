"""A topic grows: its ordering keys stay where they are and keep their order, also in processes that know the old
size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from chalicelib.domain.errors import Conflict, Refused
from chalicelib.domain.times import SECOND_MS
from chalicelib.ports.world import Clock
from chalicelib.services.consume.settle import Nack
from chalicelib.store.control import Control
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.desk import Desk
from tests.support.stages import Stage, embedded_stage
from tests.support.troubled import Counted

KEYS = [f"customer-{n}" for n in range(12)]


def shards_of(desk: Desk, keys: list[str]) -> list[int | None]:
    places = desk.produce(*(make.draft(1, ordering_key=key) for key in keys))
    return [place.shard for place in places]


def grow(desk: Desk, **changes: int) -> None:
    desk.topic, _ = desk.deps.admin.put_topic(desk.topic.name, changes)


@pytest.mark.parametrize("first", [1, 4])
def test_keys_stay_and_what_has_no_key_spreads(stage: Stage, first: int) -> None:
    desk = Desk.at(stage, shards=first)
    before = shards_of(desk, KEYS)
    grow(desk, shards=16)
    assert (desk.topic.shards, desk.topic.shards_of_keys) == (16, first)
    assert shards_of(desk, KEYS) == before
    grow(desk, shards=32)
    grow(desk, retention_days=9)
    assert shards_of(desk, KEYS) == before
    writers = [stage.process().producer for _ in range(12)]
    placed_last = [[w.produce(desk.topic, [make.draft(1)])[0] for w in writers] for _ in range(6)][-1]
    assert len({place.shard for place in placed_last}) > first, "who meets others goes elsewhere"  # type: ignore[union-attr]


def test_a_process_that_has_not_heard_of_it_puts_keys_where_the_others_do(stage: Stage) -> None:
    desk = Desk.at(stage, shards=2)
    other = stage.process()
    old = other.catalog.topic(desk.topic.name)
    grow(desk, shards=8)
    places = other.producer.produce(old, [make.draft(1, ordering_key=key) for key in KEYS])
    assert [place.shard for place in places] == shards_of(desk, KEYS)  # type: ignore[union-attr]


def test_keys_spread_further_when_that_is_asked_for(stage: Stage) -> None:
    desk = Desk.at(stage, shards=2)
    before = shards_of(desk, KEYS)
    grow(desk, shards=8)
    grow(desk, key_shards=8)
    assert shards_of(desk, KEYS) != before
    with pytest.raises(Conflict, match="SHARDS_CANNOT_SHRINK"):
        grow(desk, key_shards=4)
    with pytest.raises(Refused, match="NO_SUCH_SHARD"):
        grow(desk, key_shards=9)
    grow(desk, shards=9, key_shards=9)
    assert desk.topic.shards_of_keys == 9


steps = st.one_of(
    st.tuples(
        st.just("produce"),
        st.lists(st.tuples(st.sampled_from(KEYS[:3]), st.sampled_from((0, 0, 1, 3))), min_size=1, max_size=6),
    ),
    st.tuples(st.just("grow"), st.integers(1, 4)),
    st.tuples(st.just("pass"), st.integers(1, 4)),
    st.tuples(st.just("fail"), st.integers(1, 4)),
    st.tuples(st.just("succeed"), st.integers(1, 4)),
)


class Shop:
    """A serial group, and what it was given first of each key."""

    def __init__(self) -> None:
        self.desk = Desk.at(embedded_stage(), shards=2)
        self.group = self.desk.group(mode="serial")
        self.sent: list[tuple[str, int, int]] = []  # key, when it came or was due, its number
        self.started: dict[str, list[int]] = {}

    def produce(self, messages: list[tuple[str, int]]) -> None:
        now_ms = self.desk.stage.clock.now_ms()
        for key, seconds in messages:
            due_ms = now_ms + seconds * SECOND_MS
            number = len(self.sent)
            self.desk.produce(make.draft(number, ordering_key=key, due_ms=due_ms if seconds else None))
            self.sent.append((key, due_ms, number))

    def grow(self, by: int) -> None:
        grow(self.desk, shards=self.desk.topic.shards + by)

    def receive(self, most: int) -> list[Any]:
        messages = self.desk.receive(self.group, most)
        for delivery in messages:
            numbers = self.started.setdefault(delivery.message.draft.ordering_key or "", [])
            number = int(delivery.message.draft.body)
            if number not in numbers:
                numbers.append(number)
        return messages

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.desk.stage.clock.advance(SECOND_MS)
            self.desk.deps.mover.run_once()

    def fail(self, most: int) -> None:
        self.desk.nack(self.group, self.receive(most), Nack(delay_ms=1_500))

    def succeed(self, most: int) -> None:
        self.desk.ack(self.group, self.receive(most))


@settings(max_examples=15)
@given(plan=st.lists(steps, max_size=20))
def test_i7_a_key_keeps_its_order_through_delay_growth_and_retry(plan: list[tuple[str, Any]]) -> None:
    shop = Shop()
    for what, how in plan:
        getattr(shop, {"pass": "pass_time"}.get(what, what))(how)
    shop.pass_time(10)
    while shop.receive(1):
        shop.pass_time(31)
        shop.succeed(100)
    for key in KEYS[:3]:
        expected = [number for k, _, number in sorted(shop.sent, key=lambda draft: draft[1]) if k == key]
        assert shop.started.get(key, []) == expected


def test_priorities_grow_above_what_waits(stage: Stage) -> None:
    desk = Desk.at(stage, shards=4)
    group = desk.group()
    consumer = desk.consumer(group, "one")
    before = shards_of(desk, KEYS)
    for unknown in ({"priority": 1}, {"shard": 256}):
        with pytest.raises(AssertionError, match="NO_SUCH_"):
            desk.produce(make.draft(**unknown))
    due_ms = stage.clock.now_ms() + SECOND_MS
    delayed = desk.produce(*(make.draft(priority=0, due_ms=due_ms, keys=("k",)) for _ in range(2)))
    grow(desk, priorities=3)
    assert (shards_of(desk, KEYS), desk.topic.shard_numbers) == (before, [0, 1, 2, 3, 256, 512])
    with pytest.raises(Conflict, match="PRIORITIES_CANNOT_SHRINK"):
        grow(desk, priorities=2)
    with pytest.raises(AssertionError, match="give another `shard`"):
        desk.produce(make.draft(priority=0, shard=256))
    desk.produce(make.draft(priority=2), make.draft(priority=1, ordering_key="k"))
    stage.clock.advance(SECOND_MS)
    desk.deps.mover.run_once()
    assert {desk.deps.lookup.message(desk.topic, each.id).shard for each in delayed} == {512}
    (first, second, third, *others) = desk.receive(group, 100, consumer)
    assert [each.message.shard for each in (first, second, third)] == [512, 512, 256]
    assert len(others) == 2 * len(KEYS) + 1
    assert desk.ack(group, [first, second, third]) == [None] * 3
    grow(desk, shards=12)
    urgent = [make.draft(ordering_key=key, priority=1) for key in KEYS]
    assert {each.shard for each in desk.produce(*urgent)} == {256}, "keys stay where they are"


class Eventful:
    """A clock on which something happens during a sleep: each event once its time has come."""

    def __init__(self, clock: Clock, events: list[tuple[int, Callable[[], object]]]) -> None:
        self._clock = clock
        self._events = events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)
        while self._events and self._events[0][0] <= self._clock.now_ms():
            self._events.pop(0)[1]()


@pytest.mark.parametrize("is_registered", [True, False])
def test_who_waits_for_messages_gets_those_of_a_shard_that_is_new(stage: Stage, is_registered: bool) -> None:
    desk = Desk.at(stage, shards=1)
    group, topic, start_ms = desk.group(), desk.topic, stage.clock.now_ms()
    consumer = desk.consumer(group, "one") if is_registered else None

    def produce() -> None:
        desk.produce(make.draft(shard=1))

    clock = Eventful(
        stage.clock, [(start_ms + 1_000, lambda: grow(desk, shards=2)), (start_ms + 5_000, produce)]
    )
    adapters = stage.another()
    control = Counted(adapters.control)
    deps = Deps(replace(adapters, clock=cast(Clock, clock), control=cast(Control, control)))
    (message,) = deps.receiver.receive(topic, group, consumer, 10, 20, 30)
    assert message.message.shard == 1
    assert stage.clock.now_ms() - start_ms < 7_000
    assert control.calls["topic"] <= control.calls["group"] + is_registered, "as seldom as the group"
