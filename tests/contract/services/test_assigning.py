"""Assignments: each process that reads them keeps them true, each change raises the epoch by one, and idling writes
nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain.assignment import Assignment, is_online
from chalicelib.domain.times import HOUR_MS, SECOND_MS
from chalicelib.domain.topic import Consumer, Group
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.desk import Desk
from tests.support.stages import Stage


@pytest.fixture
def desk(stage: Stage) -> Desk:
    return Desk.at(stage, shards=4)


def owners(assignment: Assignment, *consumers: Consumer) -> str:
    names = {c.uid: c.name for c in consumers}
    return "".join(names[uid] for uid in assignment.owners)


def current(desk: Desk, group: Group, deps: Deps | None = None) -> Assignment:
    """As a process that looks them up first sees it."""
    deps = deps or desk.deps
    topic = deps.catalog.topic(desk.topic.name)
    return deps.assignments.current(topic, deps.catalog.group(topic, group.name))


def called(desk: Desk, group: Group, name: str, **fields: Any) -> Consumer:
    consumer = make.consumer(group, name, kind="url", target="https://example.com/", seen_ms=0, **fields)
    assert desk.stage.adapters.control.put_consumer(desk.topic, group, consumer, None)
    desk.deps.catalog.forget(desk.topic, group)
    return consumer


def test_joining_and_leaving_assign_at_once_and_raise_the_epoch_by_one(desk: Desk) -> None:
    group = desk.group()
    assert current(desk, group).epoch == 0
    a = desk.consumer(group, "a")
    assignment_of = desk.stage.adapters.control.assignment
    assert [h and (h.epoch, owners(h, a)) for h in [assignment_of(desk.topic, group)]] == [(1, "aaaa")]
    b = desk.consumer(group, "b")
    assert [h and (h.epoch, owners(h, a, b)) for h in [assignment_of(desk.topic, group)]] == [(2, "abab")]
    desk.deps.registry.unregister(desk.topic, group, a)
    assert [h and (h.epoch, owners(h, b)) for h in [assignment_of(desk.topic, group)]] == [(3, "bbbb")]
    desk.deps.registry.unregister(desk.topic, group, b)
    assert [h and (h.epoch, h.owners, h.members) for h in [assignment_of(desk.topic, group)]] == [(4, (), ())]


def test_a_silent_consumers_shards_move_when_others_look(desk: Desk) -> None:
    group, clock = desk.group(), desk.stage.clock
    a, b = desk.consumer(group, "a"), desk.consumer(group, "b")
    clock.advance(29 * SECOND_MS)
    desk.deps.registry.heartbeat(desk.topic, group, b)
    assert owners(current(desk, group), a, b) == "abab"
    clock.advance(1 * SECOND_MS)
    assignment = current(desk, group)
    assert (assignment.epoch, owners(assignment, a, b), assignment.at_ms) == (3, "bbbb", clock.now_ms())


@pytest.mark.parametrize("is_alive", [True, False])
def test_i10_a_clock_that_was_ahead_keeps_no_shards_for_who_left(desk: Desk, is_alive: bool) -> None:
    """Who is alive shows it by the clock that was set right."""
    group = desk.group(mode="serial")
    desk.stage.clock.advance(HOUR_MS)
    a, b = desk.consumer(group, "a"), desk.consumer(group, "b")
    desk.stage.clock.advance(-HOUR_MS)
    desk.produce(*(make.draft(n, shard=n) for n in range(4)))
    for _ in range(10):
        deps = desk.stage.process()
        for name in ("a", "b") if is_alive else ("b",):
            consumer = deps.catalog.consumer(desk.topic, group, name)
            deps.registry.sign_of_life(desk.topic, group, consumer)
            messages = deps.receiver.receive(desk.topic, group, consumer, 10, 0, 30)
            Desk(desk.stage, deps, desk.topic).ack(group, messages)
        desk.stage.clock.advance(5 * SECOND_MS)
    assert owners(current(desk, group, desk.stage.process()), a, b) == ("abab" if is_alive else "bbbb")
    assert [desk.cursor(group, shard).next for shard in range(4)] == [1] * 4


def test_receiving_brings_a_consumer_back_at_once(desk: Desk) -> None:
    group = desk.group()
    a, b = desk.consumer(group, "a"), desk.consumer(group, "b")
    desk.stage.clock.advance(31 * SECOND_MS)
    desk.deps.registry.heartbeat(desk.topic, group, b)
    assert desk.deps.receiver.shards_for(desk.topic, group, a) == (0, 2), "those it would have"
    assert owners(current(desk, group), a, b) == "bbbb"
    desk.deps.registry.sign_of_life(desk.topic, group, a)
    assert owners(current(desk, group), a, b) == "abab"


def test_nothing_is_written_while_nothing_changes(desk: Desk) -> None:
    group = desk.group()
    a = desk.consumer(group, "a")
    other = desk.stage.process()
    for _ in range(20):
        desk.stage.clock.advance(9 * SECOND_MS)
        desk.deps.registry.heartbeat(desk.topic, group, a)
        for deps in (desk.deps, other):
            assert current(desk, group, deps).epoch == 1


@pytest.mark.parametrize("change", ["consumers", "strategy", "shards"])
def test_an_old_view_of_anything_is_mended_before_it_is_written(desk: Desk, change: str) -> None:
    group = desk.group()
    a = desk.consumer(group, "a")
    old = desk.stage.process()
    topic = old.catalog.topic(desk.topic.name)
    group_as_read = old.catalog.group(topic, group.name)
    old.catalog.consumers(topic, group_as_read)
    if change == "consumers":
        desk.consumer(group, "b")
    elif change == "strategy":
        desk.group(assignment="average")
    else:
        desk.deps.admin.put_topic(topic.name, {"shards": 6})
    assignment = current(desk, group)
    assert assignment.epoch == 2
    assert old.assignments.current(topic, group_as_read) == assignment
    assert a.uid in assignment.members


def test_a_group_that_is_gone_gets_no_new_assignment(desk: Desk) -> None:
    group = desk.group()
    desk.consumer(group, "a")
    late_process = desk.stage.process()
    late_process.catalog.consumers(desk.topic, group)
    desk.deps.admin.delete_group(desk.topic, group)
    late_process.assignments.current(desk.topic, group)
    assert desk.stage.adapters.control.assignment(desk.topic, group) is None
    desk.deps.admin.delete_topic(desk.topic)
    late_process.catalog.forget(desk.topic, group)
    late_process.assignments.current(replace(desk.topic, shards=9), group)
    assert desk.stage.adapters.control.assignment(desk.topic, group) is None


@pytest.mark.parametrize("sign", ["ack", "nack", "extend"])
@pytest.mark.parametrize("mode", ["queue", "broadcast"])
def test_settling_and_extending_are_signs_of_life(desk: Desk, sign: str, mode: str) -> None:
    """A consumer at work on what it has received is not offline: its backlog is not skipped."""
    group = desk.group(mode=mode, offline="skip")
    consumer = desk.consumer(group, "a")
    desk.produce(*make.drafts(30))
    messages = desk.receive(group, 8, consumer, lease=600)
    for delivery in messages[:-1]:
        desk.stage.clock.advance(9 * SECOND_MS)
        if sign == "extend":
            assert desk.extend(group, [delivery], 600) == [None]
        else:
            assert (desk.ack if sign == "ack" else desk.nack)(group, [delivery]) == [None]
    stored_consumer = desk.deps.catalog.consumer(desk.topic, group, "a")
    assert is_online(stored_consumer, desk.stage.clock.now_ms())
    desk.deps.registry.sign_of_life(desk.topic, group, stored_consumer)
    assert len(desk.receive(group, 100, consumer)) >= 22
    assert desk.ack(group, messages[-1:]) == [None]


@pytest.mark.parametrize("sign", ["ack", "nack", "extend", "receive"])
def test_i1_who_works_quietly_on_what_it_has_keeps_it_though_it_was_silent(desk: Desk, sign: str) -> None:
    group = desk.group(mode="broadcast", offline="skip")
    consumer = desk.consumer(group, "a")
    desk.produce(*make.drafts(10))
    messages = desk.receive(group, 5, consumer, lease=120)
    desk.stage.clock.advance(40 * SECOND_MS)
    if sign == "receive":
        stored_consumer = desk.deps.catalog.consumer(desk.topic, group, "a")
        desk.deps.registry.sign_of_life(desk.topic, group, stored_consumer)
    elif sign == "extend":
        assert desk.extend(group, messages, 120) == [None] * 5
    else:
        assert (desk.ack if sign == "ack" else desk.nack)(group, messages[:1]) == [None]
    assert desk.ack(group, messages[1:]) == [None] * 4
    assert len(desk.receive(group, 100, consumer)) >= 5


def test_signs_of_life_are_written_every_ten_seconds_at_most(desk: Desk) -> None:
    group = desk.group()
    consumer = desk.consumer(group, "a")
    desk.produce(*make.drafts(100))
    before = desk.deps.catalog.consumer(desk.topic, group, "a").version
    for delivery in desk.receive(group, 60, consumer, lease=600):
        desk.stage.clock.advance(SECOND_MS)
        assert desk.ack(group, [delivery]) == [None]
    desk.deps.catalog.forget(desk.topic, group)
    assert 4 <= desk.deps.catalog.consumer(desk.topic, group, "a").version - before <= 6


def test_who_is_about_to_wait_shows_life_before(desk: Desk) -> None:
    group = desk.group()
    desk.consumer(group, "a")
    for wait_s, is_written in ((0, False), (20, True)):
        desk.stage.clock.advance(6 * SECOND_MS)
        stored_consumer = desk.deps.catalog.consumer(desk.topic, group, "a")
        desk.deps.registry.sign_of_life(desk.topic, group, stored_consumer, wait_s)
        now = desk.deps.catalog.consumer(desk.topic, group, "a")
        assert (now.seen_ms == desk.stage.clock.now_ms()) is is_written


def test_only_those_that_pull_have_seats_among_one_another(desk: Desk) -> None:
    group = desk.group()
    called(desk, group, "called")
    ann, bob = desk.consumer(group, "ann"), desk.consumer(group, "bob")
    seats = [desk.deps.assignments.seat(desk.topic, group, each.uid, 10) for each in (ann, bob)]
    assert [(seat.rank, seat.total) for seat in seats if seat] == [(0, 2), (1, 2)]
