"""Races for settings, assignments and deletions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from chalicelib.domain.assignment import Assignment
from chalicelib.domain.replay import Replay
from chalicelib.domain.signing import KeyRing, Secret
from chalicelib.domain.topic import Topic
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.stages import Stage


def _topic(stage: Stage) -> Topic:
    topic = make.topic(make.uid("orders-"))
    assert stage.adapters.control.put_topic(topic, None)
    return replace(topic, version=1)


def _is_put_as_it_was_read(write: Callable[[Any, Any], bool], row: Any) -> None:
    assert write(row, None)
    assert not write(row, None), "it is there"
    first = replace(row, version=1)
    assert write(first, first)
    assert not write(first, first), "it was changed"
    assert write(first, replace(row, version=2))


def settings_are_changed_as_they_were_read(stage: Stage) -> None:
    control, topic = stage.adapters.control, _topic(stage)
    group = make.group(topic)
    _is_put_as_it_was_read(control.put_topic, make.topic(make.uid("t")))
    _is_put_as_it_was_read(lambda new, old: control.put_group(topic, new, old), group)
    _is_put_as_it_was_read(
        lambda new, old: control.put_consumer(topic, group, new, old), make.consumer(group)
    )
    _is_put_as_it_was_read(control.put_token, make.token(make.uid("t")))
    _is_put_as_it_was_read(
        control.put_replay, Replay(make.uid("r"), topic.name, topic.name, START_MS, 1, 2, 100)
    )
    _is_put_as_it_was_read(
        lambda new, old: control.put_schedule(new, old, None, make.timer()), make.schedule(make.uid("s"))
    )
    ring = KeyRing((Secret("01"),))
    stored_ring = control.key_ring()
    assert not control.put_key_ring(ring, replace(ring, version=99))
    assert control.put_key_ring(ring, None) == (stored_ring is None)
    assert not control.put_key_ring(ring, None), "it is there"
    stored_ring = control.key_ring()
    assert stored_ring
    assert control.put_key_ring(stored_ring, stored_ring)
    assert not control.put_key_ring(ring, stored_ring), "it was changed"


def an_assignment_follows_the_one_before(stage: Stage) -> None:
    control, topic = stage.adapters.control, _topic(stage)
    group = make.group(topic)
    first, second = Assignment(1, "mod"), Assignment(2, "mod")
    assert not control.put_assignment(topic, group, second)
    assert control.put_assignment(topic, group, first)
    assert not control.put_assignment(topic, group, replace(first, strategy="other"))
    assert control.put_assignment(topic, group, second)
    assert not control.put_assignment(topic, group, replace(second, strategy="other"))
    assert control.assignment(topic, group) == second


def what_was_changed_meanwhile_is_not_retired(stage: Stage) -> None:
    control, topic = stage.adapters.control, _topic(stage)
    group = make.group(topic)
    assert control.put_group(topic, group, None)
    assert control.put_group(topic, group, replace(group, version=1))
    assert not control.retire_group(topic, replace(group, version=1))
    assert control.group(topic, group.name)
    assert control.retire_group(topic, replace(group, version=2))
    assert control.put_topic(topic, topic)
    assert not control.retire_topic(topic)
    assert control.topic(topic.name)
    assert control.retire_topic(replace(topic, version=2))
    schedule = replace(make.schedule(make.uid("s")), version=1)
    assert control.put_schedule(schedule, None, None, make.timer())
    assert control.put_schedule(schedule, schedule, None, make.timer())
    assert not control.delete_schedule(schedule, None)
    assert control.delete_schedule(replace(schedule, version=2), None)


def a_deletion_takes_only_the_life_that_was_meant(stage: Stage) -> None:
    control, topic = stage.adapters.control, _topic(stage)
    group = make.group(topic)
    assert control.put_group(topic, group, None)
    consumer = make.consumer(group)
    assert control.put_consumer(topic, group, consumer, None)
    control.delete_consumer(topic, group, replace(consumer, uid=make.uid("earlier")))
    assert control.consumer(topic, group, consumer.name)
    control.delete_consumer(topic, group, consumer)
    assert control.consumer(topic, group, consumer.name) is None
    control.delete_group(topic, replace(group, uid=make.uid("earlier")))
    assert control.group(topic, group.name)
    control.delete_group(topic, group)
    assert control.group(topic, group.name) is None
    control.delete_topic(replace(topic, uid=make.uid("earlier")), 0)
    assert control.topic(topic.name)
    control.delete_topic(topic, 0)
    assert control.topic(topic.name) is None


SCENES = (
    settings_are_changed_as_they_were_read,
    an_assignment_follows_the_one_before,
    what_was_changed_meanwhile_is_not_retired,
    a_deletion_takes_only_the_life_that_was_meant,
)
