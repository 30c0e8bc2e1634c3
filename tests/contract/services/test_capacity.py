"""How many messages a run of `deliver` may have in flight and may claim, beside other runs and consumers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from chalicelib.domain.call_result import CallResult, Verdict
from chalicelib.domain.limits import MAX_BYTES_UNDER_WAY
from chalicelib.domain.topic import Consumer, Group
from chalicelib.services.consume.claimant import ClaimedMessage
from chalicelib.services.push.sources import Capacity, Sources, lane_share
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.push import PushDesk, capacity_of, claims_of, sources_of
from tests.support.stages import embedded_stage
from tests.support.troubled import Troubled

MOST = 8


@dataclass
class Scene:
    """A run for a group of one subscriber."""

    desk: PushDesk
    group: Group
    consumer: Consumer
    sources: Sources
    capacity: Capacity


@pytest.fixture
def scene() -> Scene:
    return new_scene()


def new_scene() -> Scene:
    desk = PushDesk.at(embedded_stage())
    group = desk.group(max_in_flight=MOST)
    consumer = desk.subscriber(group, "one")
    return Scene(desk, group, consumer, sources_of(desk.deps, desk.topic, group), capacity_of(desk.deps))


def test_what_is_sent_from_the_lane_takes_of_its_share_and_nothing_else_does(scene: Scene) -> None:
    capacity, share = scene.capacity, lane_share(MOST)
    fresh, from_lane = make.claimed_message(), make.claimed_message(entry=3)
    capacity.count(scene.consumer, [fresh, fresh, from_lane], +1)
    assert (capacity.under_way, capacity.room(scene.sources, 0, scene.consumer)) == (3, MOST - 3)
    assert capacity.room(scene.sources, None, scene.consumer) == share - 1
    capacity.count(scene.consumer, [from_lane], -1)
    assert (capacity.under_way, capacity.room(scene.sources, None, scene.consumer)) == (2, share)


def test_bodies_that_fill_the_memory_leave_no_room_until_they_have_ended(scene: Scene) -> None:
    large = make.claimed_message(of=make.draft(blob="a", blob_bytes=MAX_BYTES_UNDER_WAY))
    for sign, room in ((+1, 0), (-1, MOST)) * 2:
        scene.capacity.count(scene.consumer, [large], sign)
        assert scene.capacity.room(scene.sources, 0, scene.consumer) == room


def test_a_consumer_whose_part_others_have_keeps_its_guarantee(scene: Scene) -> None:
    scene.desk.produce(*make.drafts(MOST))
    scene.desk.receive(scene.group, MOST, scene.consumer)
    assert not scene.capacity.is_limited
    assert scene.capacity.read_other_runs(scene.sources) >= MOST
    assert scene.capacity.free(scene.sources) <= 0
    assert scene.capacity.room(scene.sources, 0, scene.consumer) == 1 == scene.sources.limits(0).guaranteed
    assert scene.capacity.is_limited


def test_the_other_runs_are_asked_again_after_a_second_if_they_had_what_we_could_use(scene: Scene) -> None:
    scene.capacity.read_other_runs(scene.sources)
    scene.desk.stage.clock.advance(1_001)
    assert not scene.capacity.is_to_look(scene.sources), "nothing was missing"
    scene.capacity.is_limited = True
    assert scene.capacity.is_to_look(scene.sources)
    scene.capacity.read_other_runs(scene.sources)
    scene.desk.stage.clock.advance(1_000)
    assert not scene.capacity.is_to_look(scene.sources)
    scene.desk.stage.clock.advance(-1_001)
    assert scene.capacity.is_to_look(scene.sources), "the clock was set back"


@dataclass
class OneOfTwo:
    """The run of shard 0, beside that of shard 1; 64 messages may be in flight, 5 of each cursor in any case."""

    desk: PushDesk
    group: Group
    consumer: Consumer
    sources: Sources
    capacity: Capacity

    def lease(self, count: int, shard: int) -> list[ClaimedMessage]:
        self.desk.produce(*make.drafts(count, shard=shard))
        messages = self.desk.receive(self.group, 100, self.consumer)
        assert len(messages) == count
        return messages


@pytest.fixture
def one_of_two() -> OneOfTwo:
    desk = PushDesk.at(embedded_stage(), shards=2)
    group = desk.group(max_in_flight=64)
    consumer = desk.subscriber(group, "one")
    return OneOfTwo(desk, group, consumer, sources_of(desk.deps, desk.topic, group), capacity_of(desk.deps))


def test_a_run_that_is_left_hardly_more_than_its_guarantee_asks_the_others_at_once(
    one_of_two: OneOfTwo,
) -> None:
    """Claims of a few messages cost as many writes as those of many."""
    messages = one_of_two.lease(50, shard=1)
    one_of_two.capacity.read_other_runs(one_of_two.sources)
    assert not one_of_two.capacity.is_to_look(one_of_two.sources)
    one_of_two.capacity.is_limited = True
    assert one_of_two.capacity.is_to_look(one_of_two.sources)
    assert one_of_two.desk.ack(one_of_two.group, messages[:20]) == [None] * 20
    one_of_two.capacity.read_other_runs(one_of_two.sources)
    assert not one_of_two.capacity.is_to_look(one_of_two.sources)


def fail_until_open(scene: Scene, consumer: Consumer) -> None:
    health = scene.desk.deps.dispatcher.context.subscriber_health
    for _ in range(10):
        failures = [CallResult(Verdict.FAILED, "refused")]
        health.note(
            scene.desk.topic, scene.group, consumer, failures, MOST, began_ms=scene.desk.stage.clock.now_ms()
        )


def test_one_sound_consumer_is_enough_to_go_on(scene: Scene) -> None:
    other = scene.desk.subscriber(scene.group, "two")
    both = sources_of(scene.desk.deps, scene.desk.topic, scene.group)
    assert scene.capacity.allowance(both) == MOST
    fail_until_open(scene, scene.consumer)
    assert scene.capacity.allowance(both) == MOST
    fail_until_open(scene, other)
    assert scene.capacity.allowance(both) == 0
    for _ in range(2):
        for consumer in (scene.consumer, other):
            assert scene.capacity.room(both, 0, consumer) == 0
        assert scene.capacity.circuits_ms == [scene.desk.stage.clock.now_ms() + 1_000], "asked for once"
    scene.desk.stage.clock.advance(1_001)
    scene.capacity.see_circuits(scene.desk.topic, scene.group)
    (first, second) = scene.capacity.circuits_ms
    assert first == second > scene.desk.stage.clock.now_ms()


def test_a_circuit_that_opens_again_after_its_registration_was_read_is_asked_for_soon(scene: Scene) -> None:
    topic, desk = scene.desk.topic, scene.desk
    scene.capacity.see_circuits(topic, scene.group)
    for _ in range(10):
        failures = [CallResult(Verdict.FAILED, "refused")]
        desk.deps.dispatcher.context.subscriber_health.note(
            topic, scene.group, scene.consumer, failures, MOST, began_ms=desk.stage.clock.now_ms()
        )
    assert scene.capacity.room(scene.sources, 0, scene.consumer) <= 0
    asked_ms = desk.stage.clock.now_ms() + 1_000
    assert scene.capacity.circuits_ms == [asked_ms]
    desk.stage.clock.advance(1_000)
    assert scene.capacity.room(scene.sources, 0, scene.consumer) <= 0
    assert scene.capacity.circuits_ms == [asked_ms, asked_ms + 1_000], "and again, as long as it is open"


def test_after_a_recovery_the_lane_gets_its_share_of_what_is_allowed_then(scene: Scene) -> None:
    fail_until_open(scene, scene.consumer)
    health = scene.desk.deps.dispatcher.context.subscriber_health
    results = [CallResult(Verdict.DONE)]
    while (allowance := health.allowance(scene.consumer, MOST)) < 3:
        scene.desk.stage.clock.advance(60_000)
        health.note(
            scene.desk.topic,
            scene.group,
            scene.consumer,
            results,
            MOST,
            began_ms=scene.desk.stage.clock.now_ms(),
        )
    assert lane_share(allowance) < lane_share(MOST)
    assert scene.capacity.room(scene.sources, None, scene.consumer) == lane_share(allowance)


class Run:
    """A run for a group of two subscribers, in a process that may have cursors of the test's own."""

    def __init__(self, most: int = 8, shards: int = 1, refuses: Any = None) -> None:
        self.desk = PushDesk.at(embedded_stage(), shards=shards)
        self.group: Group = self.desk.group(max_in_flight=most)
        self.one, self.two = (self.desk.subscriber(self.group, name) for name in ("one", "two"))
        a = self.desk.deps.adapters
        deps = (
            Deps(replace(a, cursors=cast(Any, Troubled(a.cursors, refuses)))) if refuses else self.desk.deps
        )
        self.sources = sources_of(deps, self.desk.topic, self.group)
        self.capacity = capacity_of(deps)
        self.claims = claims_of(deps, self.capacity)

    def sent(self) -> Counter[str]:
        """How many messages each consumer is granted now; they stay under way."""
        counts: Counter[str] = Counter()
        for consumer, messages in self.claims.grants(self.sources):
            self.capacity.count(consumer, messages, +1)
            counts[consumer.name] += len(messages)
        return counts

    def has_sent(self, consumer: Consumer, count: int) -> None:
        self.capacity.count(consumer, [make.claimed_message()] * count, +1)


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("left", [0, 1])
def test_a_consumer_gets_no_more_than_its_room_and_leaves_the_others_theirs(
    is_first: bool, left: int
) -> None:
    run = Run()
    busy, other = (run.one, run.two) if is_first else (run.two, run.one)
    run.has_sent(busy, 4 - left)
    run.desk.produce(*make.drafts(20))
    assert run.sent() == Counter({busy.name: left, other.name: 4})


def test_a_shards_guarantee_is_all_its_consumers_whatever_other_runs_hold() -> None:
    run = Run(most=64, shards=3)
    run.desk.produce(*make.drafts(80, shard=1))
    assert len(run.desk.receive(run.group, 80, run.one)) == 80
    run.desk.produce(*make.drafts(30, shard=0))
    run.capacity.read_other_runs(run.sources)
    assert run.capacity.free(run.sources) <= 0
    assert run.sent().total() == run.sources.limits(0).guaranteed == 4


def test_while_the_other_runs_cannot_be_asked_only_what_is_guaranteed_is_sent() -> None:
    run = Run(most=64, refuses=lambda name, *_: name == "of_owner")
    run.desk.produce(*make.drafts(64))
    assert run.sent().total() == run.sources.limits(0).guaranteed == 8
    assert run.claims.fault
    assert run.desk.cursor(run.group).in_flight == 8
    assert {each.attempt for each in run.desk.receive(run.group, 100)} == {1}, "the rest was given back"


def test_who_found_every_place_taken_claims_again_if_they_are_free_after_its_last_return() -> None:
    """Otherwise no run would look again: the run that held them saw nothing waiting."""
    looks: list[str] = []

    def is_done_meanwhile(name: str, *_: object) -> bool:
        looks.extend([name] if name == "of_owner" else [])
        if len(looks) == 2 and held:
            messages = [held.pop() for _ in range(8)]
            assert set(run.desk.ack(run.group, messages)) == {None}
        return False

    held: list[ClaimedMessage] = []
    run = Run(shards=2, refuses=is_done_meanwhile)
    run.desk.produce(*make.drafts(8, shard=1))
    held += run.desk.receive(run.group, 8, run.one)
    run.desk.produce(*make.drafts(20, shard=0))
    assert run.sent().total() == 8
    assert held == []
