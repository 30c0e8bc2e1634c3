"""Deleting topics and groups, and making them again under their names: what is gone comes back in no process, and what
is accepted afterwards is the new one's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from chalicelib.adapters import Adapters
from chalicelib.domain.cursor import CLOSED
from chalicelib.domain.errors import NotFound
from chalicelib.domain.ladder import Retry
from chalicelib.domain.timer import TimerKind
from chalicelib.domain.times import SECOND_MS
from chalicelib.domain.topic import ConsumerKind, Group, Topic, cursor_key, lane_of
from chalicelib.services.consume.settle import Nack
from chalicelib.services.manage.admin import Admin
from chalicelib.services.manage.registry import Contact
from chalicelib.store.layout import FRAGMENTS
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.desk import Desk, offsets, require_stored
from tests.support.faults import Death
from tests.support.stages import Stage


def warm(desk: Desk, group: Group | None = None) -> Desk:
    """Another process that has just served the topic, and the group."""
    deps = desk.stage.process()
    topic = deps.catalog.topic(desk.topic.name)
    if group:
        deps.receiver.receive(topic, deps.catalog.group(topic, group.name), None, 10, 0, 30)
    return Desk(desk.stage, deps, topic)


def produce(deps: Deps, name: str, *, delay_ms: int = 0) -> list[object]:
    """What a request does."""
    due_ms = deps.adapters.clock.now_ms() + delay_ms if delay_ms else None
    return list(deps.producer.produce(deps.catalog.topic(name), [make.draft("precious", due_ms=due_ms)]))


def bodies(desk: Desk, group: Group) -> list[bytes]:
    contents = [d.message.draft.body for d in desk.receive(group)]
    desk.stage.clock.advance(100)
    return contents


def test_a_deleted_group_gives_nothing_again_in_a_process_that_has_it_in_its_cache(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(30))
    assert len(desk.drain(group)) == 30
    other = warm(desk, group)
    desk.deps.admin.delete_group(desk.topic, group)
    assert other.receive(group, most=100) == []
    with pytest.raises(NotFound):
        other.deps.catalog.group(other.topic, group.name)


def test_a_pause_does_not_make_a_group_again_that_is_deleted_once_it_was_read(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    control = stage.adapters.control

    class ThenDeleted:
        def __getattr__(self, name: str) -> Any:
            return getattr(control, name)

        def group(self, topic: Topic, name: str) -> Group | None:
            row = control.group(topic, name)
            if row:
                desk.deps.admin.delete_group(topic, row)
            return row

    process = Deps(replace(stage.another(), control=cast(Any, ThenDeleted())))
    with pytest.raises(NotFound):
        process.admin.pause(desk.topic, group.name, True)
    assert control.groups(desk.topic) == []


@pytest.mark.parametrize("mode", ["queue", "serial", "broadcast"])
def test_i16_who_still_works_for_a_deleted_group_gets_settles_and_seeks_nothing(
    stage: Stage, mode: str
) -> None:
    """One that has the group in its hands, however long."""
    desk = Desk.at(stage, mode=mode, retry=Retry(5, (1,), jitter=0.0))
    group = desk.group()
    consumer = desk.consumer(group, "one")
    desk.produce(*(make.draft(n, ordering_key=f"k{n}") for n in range(5)))
    messages = desk.receive(group, most=2, consumer=consumer)
    worker = warm(desk)
    worker.receive(group, most=1, consumer=consumer)
    desk.deps.admin.delete_group(desk.topic, group)
    for at in (desk, worker):
        assert at.receive(group, consumer=consumer) == []
        assert at.ack(group, messages[:1]) == ["RECEIPT_STALE"]
        assert at.nack(group, messages, Nack(delay_ms=SECOND_MS)) == ["RECEIPT_STALE"] * 2
        assert at.extend(group, messages, 60) == ["RECEIPT_STALE"] * 2
        for key in (
            cursor_key(desk.topic, group, 0, consumer.uid if mode == "broadcast" else ""),
            cursor_key(desk.topic, group, None, consumer.uid if mode == "broadcast" else ""),
        ):
            with pytest.raises(NotFound):
                at.deps.positions.seek(at.topic, key, "earliest")
            assert stage.adapters.cursors.get(key, consistent=True) == CLOSED


def test_a_group_made_again_begins_anew_and_its_namesakes_receipts_are_not_its(stage: Stage) -> None:
    desk = Desk.at(stage)
    old = desk.group()
    desk.produce(*make.drafts(3))
    messages = desk.receive(old)
    other = warm(desk, old)
    desk.deps.admin.delete_group(desk.topic, old)
    new = desk.group()
    assert new.uid != old.uid
    again = other.deps.catalog.group(other.topic, old.name)
    assert again.uid == new.uid
    assert offsets(other.receive(again)) == [0, 1, 2]
    assert other.ack(again, messages) == ["RECEIPT_INVALID"] * 3


@pytest.mark.parametrize("mode", ["queue", "broadcast"])
def test_a_deleted_groups_retries_are_dropped_when_they_are_due(empty_stage: Stage, mode: str) -> None:
    desk = Desk.at(empty_stage, mode=mode, retry=Retry(5, (60,), jitter=0.0))
    group = desk.group()
    consumer = desk.consumer(group, "one")
    desk.produce(make.draft())
    desk.nack(group, desk.receive(group, consumer=consumer), Nack(delay_ms=60 * SECOND_MS))
    uid = desk.deps.catalog.cursor_owners(desk.topic, group)[0]
    lane = lane_of(desk.topic, group, uid)
    desk.deps.admin.delete_group(desk.topic, group)
    desk.group()
    empty_stage.clock.advance(61 * SECOND_MS)
    mover, timers = empty_stage.process().mover, empty_stage.adapters.timers
    assert mover.run_once().finished
    assert desk.deps.adapters.log.tail(lane.shard_key(0)).offset == -1
    assert [timers.next_ms(f, consistent=True) for f in range(FRAGMENTS)] == [None] * FRAGMENTS


def test_i1_a_group_made_again_keeps_its_retries_though_a_mover_has_the_old_one_in_its_cache(
    stage: Stage,
) -> None:
    desk = Desk.at(stage, retry=Retry(5, (1,), jitter=0.0))
    old = desk.group()
    other = warm(desk, old)
    desk.deps.adapters.control.delete_group(desk.topic, old)  # as a process does that knows of no caches
    desk.deps.catalog.forget(desk.topic, old)
    new = desk.group()
    desk.produce(make.draft())
    desk.nack(new, desk.receive(new), Nack(delay_ms=SECOND_MS))
    stage.clock.advance(SECOND_MS)
    other.deps.mover.run_once()
    assert offsets(desk.receive(new)) == [0]


def test_i1_a_topic_made_again_gets_what_other_processes_accept_for_its_name(stage: Stage) -> None:
    desk = Desk.at(stage)
    name, admin = desk.topic.name, desk.deps.admin
    other = warm(desk)
    other.produce(make.draft("old"))
    admin.delete_topic(desk.topic)
    topic, is_new = admin.put_topic(name, {"shards": 1})
    assert is_new
    new = Desk(stage, desk.deps, topic)
    group = new.group()
    require_stored(produce(other.deps, name))  # type: ignore[arg-type]
    require_stored(produce(other.deps, name, delay_ms=2 * SECOND_MS))  # type: ignore[arg-type]
    audit, _ = other.deps.admin.put_group(other.deps.catalog.topic(name), "audit", {"begin": "earliest"})
    assert bodies(new, group) == [b'"precious"']
    stage.clock.advance(2 * SECOND_MS)
    assert bodies(new, group) == [b'"precious"']
    assert bodies(new, audit) == [b'"precious"'] * 2
    assert {g.name for g in new.deps.catalog.groups(topic)} == {"billing", "audit"}


def test_i1_a_delayed_message_of_a_topic_made_again_survives_a_mover_that_has_the_old_one_in_its_cache(
    stage: Stage,
) -> None:
    desk = Desk.at(stage)
    other = warm(desk)
    desk.deps.adapters.control.delete_topic(desk.topic, 0)  # as a process does that knows of no caches
    desk.deps.catalog.forget(desk.topic)
    topic, _ = desk.deps.admin.put_topic(desk.topic.name, {"shards": 1})
    new = Desk(stage, desk.deps, topic)
    group = new.group()
    new.produce(make.draft(1, due_ms=stage.clock.now_ms() + SECOND_MS))
    stage.clock.advance(SECOND_MS)
    other.deps.mover.run_once()
    assert offsets(new.receive(group)) == [0]


@dataclass
class Dying:
    """Adapters of a process that dies before the n-th change of control data or cursors."""

    of: Adapters
    left: int

    def adapters(self) -> Adapters:
        ports: dict[str, Any] = {
            name: _Counted(getattr(self.of, name), self) for name in ("control", "cursors")
        }
        return replace(self.of, **ports)

    def count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Death


@dataclass
class _Counted:
    port: object
    dying: Dying

    def __getattr__(self, name: str) -> object:
        if name.startswith(("retire_", "delete_", "close")):
            self.dying.count()
        return getattr(self.port, name)


STEPS = 8


@pytest.mark.parametrize("step", range(STEPS))
@pytest.mark.parametrize("what", ["topic", "group"])
@pytest.mark.parametrize("repeats", [True, False])
def test_a_deletion_that_a_crash_cut_short_is_finished_by_its_repetition_and_by_the_name_s_next_life(
    stage: Stage, step: int, what: str, repeats: bool
) -> None:
    desk = Desk.at(stage, retry=Retry(5, (1,), jitter=0.0))
    group, other = desk.group(), desk.group("other")
    desk.produce(*make.drafts(3))
    assert desk.drain(group) == [0, 1, 2]
    deps = Deps(Dying(stage.another(), step).adapters())
    try:
        if what == "topic":
            deps.admin.delete_topic(desk.topic)
        else:
            deps.admin.delete_group(desk.topic, group)
    except Death:
        pass
    fresh = stage.process()
    if what == "topic":
        if repeats:
            _delete_again(fresh, desk.topic)
        topic, _ = fresh.admin.put_topic(desk.topic.name, {"shards": 1})
        if repeats or step > 1:
            assert topic.uid != desk.topic.uid
            assert fresh.catalog.groups(topic) == []
            assert stage.adapters.control.groups(desk.topic) == []
            assert desk.receive(other) == []
    else:
        if repeats:
            _delete_group_again(fresh, desk.topic, group)
        again, _ = fresh.admin.put_group(desk.topic, group.name, {"begin": "earliest"})
        if repeats or step > 1:
            assert again.uid != group.uid
            assert offsets(Desk(stage, fresh, desk.topic).receive(again)) == [0, 1, 2]
        assert desk.receive(group) == []
        assert offsets(desk.receive(other)) == [0, 1, 2]
    assert fresh.adapters.control.retired_topics(desk.topic.name) == []
    assert fresh.adapters.control.retired_groups(desk.topic, group.name) == []


@pytest.mark.parametrize("step", range(STEPS + 2))
@pytest.mark.parametrize("mode", ["queue", "broadcast"])
@pytest.mark.parametrize("then", ["delete", "put"])
def test_a_topics_deletion_finishes_those_of_its_groups_that_crashes_cut_short(
    stage: Stage, step: int, mode: str, then: str
) -> None:
    """The group's deletion dies at any step; then the topic's does, at any step, and is repeated or followed by the
    name's next life. A process that still holds the old group gets no messages."""
    desk = Desk.at(stage, mode=mode)
    group = desk.group()
    consumer = desk.consumer(group, "one")
    desk.produce(*make.drafts(3))
    messages = desk.receive(group, most=1, consumer=consumer)
    worker = warm(desk)
    worker.receive(group, most=1, consumer=consumer)
    _until_death(stage, 1 + step % 2, lambda admin: admin.delete_group(desk.topic, group))
    _until_death(stage, step, lambda admin: admin.delete_topic(desk.topic))
    if then == "delete":
        _delete_again(stage.process(), desk.topic)
    else:
        stage.process().admin.put_topic(desk.topic.name, {"shards": 1})
    if stage.adapters.control.topic(desk.topic.name) == desk.topic:
        return  # died before anything was begun
    for at in (desk, worker):
        assert at.receive(group, consumer=consumer) == []
        assert at.ack(group, messages) == ["RECEIPT_STALE"]
    uid = consumer.uid if mode == "broadcast" else ""
    for shard in (0, None):
        assert (
            stage.adapters.cursors.get(cursor_key(desk.topic, group, shard, uid), consistent=True) == CLOSED
        )


@pytest.mark.parametrize(
    ("what", "mode"), [("group", "broadcast"), ("topic", "broadcast"), ("topic", "queue")]
)
def test_a_deletion_for_which_no_request_has_time_ends_when_it_is_repeated(
    stage: Stage, what: str, mode: str
) -> None:
    """Of a thousand consumers, or hundreds of groups: each try goes on where the one before was ended."""
    desk = Desk.at(stage, mode=mode)
    groups = [desk.group(f"g{n}") for n in range(1 if what == "group" else 5)]
    consumers = [desk.consumer(groups[0], f"c{n}") for n in range(5)]
    group, tries = groups[0], 0

    def delete(admin: Admin) -> None:
        if what == "group":
            admin.delete_group(desk.topic, admin.group_to_delete(desk.topic, group.name))
        else:
            admin.delete_topic(admin.topic_to_delete(desk.topic.name))

    with pytest.raises(NotFound):  # noqa: PT012 (after as many tries as it takes)
        while tries < 15:
            _until_death(stage, 4, delete)
            tries += 1
        pytest.fail("it goes on for ever")
    for uid in (consumer.uid if mode == "broadcast" else "" for consumer in consumers):
        key = cursor_key(desk.topic, group, 0, uid)
        assert stage.adapters.cursors.get(key, consistent=True) == CLOSED


def _until_death(stage: Stage, step: int, act: Callable[[Admin], object]) -> None:
    """A process does something, and dies before its n-th change of control data or cursors."""
    try:
        act(Deps(Dying(stage.another(), step).adapters()).admin)
    except Death:
        return


def _delete_again(deps: Deps, topic: Topic) -> None:
    try:
        deps.admin.delete_topic(deps.admin.topic_to_delete(topic.name))
    except NotFound:
        return


def _delete_group_again(deps: Deps, topic: Topic, group: Group) -> None:
    try:
        deps.admin.delete_group(topic, deps.admin.group_to_delete(topic, group.name))
    except NotFound:
        return


def test_a_wake_timer_of_a_deleted_group_is_dropped(empty_stage: Stage) -> None:
    desk = Desk.at(empty_stage)
    group = desk.group()
    shard = desk.topic.shard_key(0)
    empty_stage.adapters.timers.store([make.timer(kind=TimerKind.WAKE, shard=shard)])
    desk.deps.admin.delete_group(desk.topic, group)
    empty_stage.process().mover.run_once()
    timers = empty_stage.adapters.timers
    assert [timers.next_ms(f, consistent=True) for f in range(FRAGMENTS)] == [None] * FRAGMENTS


def test_i1_who_knows_the_former_topic_of_the_name_puts_it_in_nobodys_place(stage: Stage) -> None:
    """A registration waits for its subscriber's consent; meanwhile the topic is deleted and made again."""
    desk = Desk.at(stage)
    group, admin = desk.group(), desk.deps.admin
    admin.delete_topic(desk.topic)
    topic, _ = admin.put_topic(desk.topic.name, {"shards": 1})
    new = Desk(stage, desk.deps, topic)
    new_group = new.group()
    new.produce(make.draft())
    with pytest.raises(NotFound):
        stage.process().registry.register(desk.topic, group, "late", Contact(ConsumerKind.FUNCTION, "f"))
    stored_topic = stage.adapters.control.topic(topic.name)
    assert stored_topic is not None
    assert stored_topic.uid == topic.uid
    assert offsets(new.receive(new_group)) == [0]
