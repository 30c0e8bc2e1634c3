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


def test_a_circuit_that_opens_again_after_its_registration_was_read_is_asked_for_soon(scene: Scene) -> None:
    topic, desk = scene.desk.topic, scene.desk
    scene.capacity.see_circuits(topic, scene.group)
    for _ in range(10):
        refused = [CallResult(Verdict.FAILED, "refused")]
        desk.deps.dispatcher.context.subscriber_health.note(topic, scene.group, scene.consumer, refused, MOST)
    assert scene.capacity.room(scene.sources, 0, scene.consumer) <= 0
    assert scene.capacity.circuits_ms == [desk.stage.clock.now_ms() + 1_000]
