"""The parts of a run of `deliver`, for tests that take its steps one by one."""

from __future__ import annotations

from chalicelib.domain.topic import Group, Topic
from chalicelib.services.core.wake import DispatchTask
from chalicelib.services.push.claims import Claims
from chalicelib.services.push.run_time import RunTime
from chalicelib.services.push.settlements import Settlements
from chalicelib.services.push.sources import Capacity, Sources
from chalicelib.wiring import Deps


def sources_of(deps: Deps, topic: Topic, group: Group, worker: int = 0, consumer_uid: str = "") -> Sources:
    task = DispatchTask(topic.name, group.name, worker, consumer_uid)
    return Sources(topic, group, task, deps.dispatcher.context.teams(topic, group))


def capacity_of(deps: Deps, consumer_uid: str = "") -> Capacity:
    return Capacity(
        catalog=deps.catalog,
        claimer=deps.claimer,
        health=deps.dispatcher.context.subscriber_health,
        clock=deps.adapters.clock,
        consumer_uid=consumer_uid,
    )


def claims_of(deps: Deps, capacity: Capacity) -> Claims:
    return Claims(
        claimer=deps.claimer,
        capacity=capacity,
        time=RunTime(lambda: 600.0),
        settlements=Settlements(deps.settler),
        consumer_uid="",
    )
