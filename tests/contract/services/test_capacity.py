"""How many messages a run of `deliver` may have in flight, as far as it knows."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from chalicelib.domain.call_result import CallResult, Verdict
from chalicelib.domain.topic import Consumer, Group
from chalicelib.services.core.wake import DispatchTask
from chalicelib.services.push.capacity import Capacity
from chalicelib.services.push.sources import Sources, lane_share
from tests.support import factories as make
from tests.support.push import PushDesk
from tests.support.stages import memory_stage

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
    desk = PushDesk.at(memory_stage())
    group = desk.group(max_in_flight=MOST)
    consumer = desk.subscriber(group, "one")
    deps = desk.deps
    task = DispatchTask(desk.topic.name, group.name)
    sources = Sources(desk.topic, group, task, deps.dispatcher.context.teams(desk.topic, group))
    capacity = Capacity(
        catalog=deps.catalog,
        claimer=deps.claimer,
        health=deps.dispatcher.context.subscriber_health,
        clock=desk.stage.clock,
        consumer_uid="",
    )
    return Scene(desk, group, consumer, sources, capacity)


def test_what_a_run_has_sent_itself_is_counted_once(scene: Scene) -> None:
    scene.desk.produce(*make.drafts(5))
    own, others = (scene.desk.receive(scene.group, n, scene.consumer) for n in (3, 2))
    scene.capacity.count(scene.consumer, own, +1)
    assert scene.capacity.room(scene.sources, 0, scene.consumer) == MOST - len(own), "not looked yet"
    scene.capacity.read_other_runs(scene.sources)
    assert scene.capacity.room(scene.sources, 0, scene.consumer) == MOST - len(own) - len(others)


def test_the_retry_lane_gets_its_share_of_the_slots(scene: Scene) -> None:
    assert scene.capacity.room(scene.sources, 0, scene.consumer) == MOST
    assert scene.capacity.room(scene.sources, None, scene.consumer) == lane_share(MOST) < MOST


def test_what_is_sent_from_the_lane_takes_of_its_share_and_nothing_else_does(scene: Scene) -> None:
    capacity, share = scene.capacity, lane_share(MOST)
    fresh, from_lane = make.claimed(), make.claimed(entry=3)
    capacity.count(scene.consumer, [fresh, fresh, from_lane], +1)
    assert (capacity.under_way, capacity.room(scene.sources, 0, scene.consumer)) == (3, MOST - 3)
    assert capacity.room(scene.sources, None, scene.consumer) == share - 1
    capacity.count(scene.consumer, [from_lane], -1)
    assert (capacity.under_way, capacity.room(scene.sources, None, scene.consumer)) == (2, share)


def test_a_consumer_whose_part_others_have_keeps_its_guarantee(scene: Scene) -> None:
    scene.desk.produce(*make.drafts(MOST))
    scene.desk.receive(scene.group, MOST, scene.consumer)
    assert not scene.capacity.is_limited
    assert scene.capacity.read_other_runs(scene.sources) >= MOST
    assert scene.capacity.free(scene.sources) <= 0
    assert scene.capacity.room(scene.sources, 0, scene.consumer) == 1 == scene.sources.limits(0).guaranteed
    assert scene.capacity.is_limited


def test_a_look_at_the_other_runs_is_good_for_a_second(scene: Scene) -> None:
    assert scene.capacity.is_stale()
    scene.capacity.read_other_runs(scene.sources)
    scene.desk.stage.clock.advance(1_000)
    assert not scene.capacity.is_stale()
    scene.desk.stage.clock.advance(1)
    assert scene.capacity.is_stale()


def fail_until_open(scene: Scene, consumer: Consumer) -> None:
    health = scene.desk.deps.dispatcher.context.subscriber_health
    for _ in range(10):
        failures = [CallResult(Verdict.FAILED, "refused")]
        health.note(scene.desk.topic, scene.group, consumer, failures, MOST)


def test_one_sound_consumer_is_enough_to_go_on(scene: Scene) -> None:
    other = scene.desk.subscriber(scene.group, "two")
    team = scene.desk.deps.dispatcher.context.teams(scene.desk.topic, scene.group)
    task = DispatchTask(scene.desk.topic.name, scene.group.name)
    both = Sources(scene.desk.topic, scene.group, task, team)
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
            topic, scene.group, scene.consumer, failures, MOST
        )
    assert scene.capacity.room(scene.sources, 0, scene.consumer) <= 0
    assert scene.capacity.circuits_ms == [desk.stage.clock.now_ms() + 1_000]
