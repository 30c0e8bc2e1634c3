"""A row of the control data that cannot be read costs what it stands for, and nothing else; and somebody is told."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest

from chalicelib.domain.errors import NotFound, Unavailable, Unreadable
from chalicelib.domain.limits import CONSUMER_OFFLINE_AFTER, RETENTION_GRACE
from chalicelib.domain.times import DAY_MS
from chalicelib.domain.topic import ConsumerKind, ConsumerState, Group, Topic, cursor_key
from chalicelib.functions import route
from chalicelib.services.core.catalog import CACHE_MS
from chalicelib.services.core.wake import task_of
from chalicelib.services.inspect.letter_lookup import DeadLetterFilter
from chalicelib.services.manage.registry import Contact
from chalicelib.store.attributes import Item
from chalicelib.store.control import Control
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.damage import Change, change_control, change_cursor, having, without
from tests.support.push import PushDesk, fails
from tests.support.stages import Stage
from tests.support.troubled import Counted, Preceded

DAMAGES: dict[str, Change] = {
    "of a later release": having("v", {"N": "3"}),
    "damaged": having("version", {"S": "?"}),
    "of no kind": lambda item: {},
}
_GRACE_MS = RETENTION_GRACE // timedelta(milliseconds=1)


def damage_group(stage: Stage, topic: Topic, group: Group, change: Change) -> None:
    change_control(stage, f"topic#{topic.uid}", f"group#{group.name}", change)


def two_groups(stage: Stage) -> tuple[PushDesk, Group, Group]:
    """A topic with two groups that are called; the process has read none of it yet."""
    desk = PushDesk.at(stage)
    bad, good = desk.group("bad"), desk.group("good")
    for group in (bad, good):
        desk.subscriber(group, f"for-{group.name}")
    desk.produce(make.draft("one"))
    desk.restart()
    return desk, bad, good


def woken(desk: PushDesk) -> set[tuple[str, str]]:
    jobs = [task_of(event) for function, event in desk.inbox.asked if function == "deliver"]
    return {(job.topic, job.group) for job in jobs}


EACH_ROW = [*zip(("topic", "group", "consumer"), DAMAGES, strict=True)]


@pytest.mark.parametrize(("row", "damage"), EACH_ROW)
def test_a_batch_of_the_stream_wakes_all_whose_rows_can_be_read(stage: Stage, row: str, damage: str) -> None:
    desk, other, _ = routed_twice(stage, row, damage)
    neighbours = {(other.topic.name, "other")} | ({(desk.topic.name, "good")} if row != "topic" else set())
    assert woken(desk) == neighbours


@pytest.mark.parametrize(("row", "damage"), EACH_ROW)
def test_a_row_that_a_batch_of_the_stream_could_not_read_is_told_once_a_minute(
    stage: Stage, row: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    _, _, sort_key = routed_twice(stage, row, damage)
    [line] = [vars(record) for record in caplog.records if record.message == "undecodable"]
    assert sort_key in line["row"]


def routed_twice(stage: Stage, row: str, damage: str) -> tuple[PushDesk, PushDesk, str]:
    """Two topics, in the first of which a row is damaged; the stream's batch with messages of both comes twice. The
    sort key of the damaged row, too."""
    desk, bad, _ = two_groups(stage)
    other = PushDesk.at(stage)
    other.subscriber(other.group("other"), "for-other")
    place = {
        "topic": ("topics", desk.topic.name),
        "group": (f"topic#{desk.topic.uid}", "group#bad"),
        "consumer": (f"topic#{desk.topic.uid}", f"consumer#{bad.uid}#for-bad"),
    }[row]
    change_control(stage, *place, DAMAGES[damage])
    records = [
        {
            "eventName": "INSERT",
            "dynamodb": {"SequenceNumber": "1", "Keys": {"s": {"S": str(t.shard_key(0))}, "o": {"N": "0"}}},
        }
        for t in (desk.topic, other.topic)
    ]
    for _ in range(2):
        assert route({"Records": records}, desk.deps)["batchItemFailures"] == []
    return desk, other, place[1]


@pytest.mark.parametrize("mode", ["queue", "broadcast"])
def test_a_group_goes_on_without_the_consumer_whose_row_cannot_be_read(stage: Stage, mode: str) -> None:
    desk = PushDesk.at(stage, mode=mode)
    group = desk.group("all")
    bad, good = desk.subscriber(group, "bad"), desk.subscriber(group, "good")
    home = f"topic#{desk.topic.uid}"
    assignment = desk.deps.assignments.current(desk.topic, group)
    desk.produce(*make.drafts(3))
    change_control(stage, home, f"consumer#{group.uid}#bad", DAMAGES["of a later release"])
    desk.restart()
    tasks = list(desk.deps.waker.tasks_of(desk.topic, group))
    assert {task.consumer_uid for task in tasks} == {good.uid if mode == "broadcast" else ""}
    assert desk.deps.counters.take()["Undecodable"] == 1
    assert desk.deps.assignments.team(desk.topic, group).called == [good]
    desk.push()
    assert len(desk.subscribers.numbers()) == 3
    assert {call.target for call in desk.subscribers.calls} == {good.target}
    stored_assignment = stage.adapters.control.assignment(desk.topic, group)
    assert stored_assignment == assignment, "it has not left"
    assert desk.deps.catalog.consumer(desk.topic, group, "good") == good
    with pytest.raises(Unavailable):
        desk.deps.catalog.consumer(desk.topic, group, bad.name)
    if mode == "broadcast":
        with pytest.raises(Unavailable):
            desk.deps.catalog.cursor_owners(desk.topic, group)


def damage_consumer(stage: Stage, topic: Topic, group: Group, name: str) -> None:
    change_control(stage, f"topic#{topic.uid}", f"consumer#{group.uid}#{name}", DAMAGES["of a later release"])


@pytest.mark.parametrize("mode", ["queue", "broadcast"])
def test_consumers_come_and_go_beside_one_whose_row_cannot_be_read(stage: Stage, mode: str) -> None:
    desk = PushDesk.at(stage, mode=mode)
    group = desk.group("all")
    for name in ("bad", "good"):
        desk.consumer(group, name)
    damage_consumer(stage, desk.topic, group, "bad")
    desk.restart()
    new = desk.consumer(group, "new")
    desk.produce(make.draft("one"))
    assert len(desk.receive(group, consumer=new)) == 1
    desk.deps.registry.unregister(desk.topic, group, desk.deps.catalog.consumer(desk.topic, group, "good"))
    assert desk.deps.catalog.consumer_names(desk.topic, group) == {new.uid: "new"}
    with pytest.raises(NotFound):
        desk.deps.catalog.consumer(desk.topic, group, "good")
    for method in (desk.deps.registry.register, desk.deps.catalog.consumer):
        with pytest.raises(Unavailable):
            method(desk.topic, group, "bad")
    assert [c.name for c in desk.deps.catalog.readable_consumers(desk.topic, group)] == ["new"]


def test_the_sweep_wakes_a_group_for_the_consumers_whose_rows_can_be_read(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group("all")
    desk.subscriber(group, "bad")
    desk.subscriber(group, "good")
    assignment = desk.deps.assignments.current(desk.topic, group)
    neighbour = desk.group("later")
    desk.consumer(neighbour, "silent")
    stage.clock.advance(CONSUMER_OFFLINE_AFTER // timedelta(milliseconds=1))
    desk.produce(make.draft("one"))
    damage_consumer(stage, desk.topic, group, "bad")
    desk.restart()
    for job in (desk.deps.sweeper, desk.deps.assigner):
        troubles = job.run_once().stretch.troubles
        details = [trouble.detail for trouble in troubles if trouble.topic == desk.topic.name]
        assert [f"consumer#{group.uid}#bad" in detail for detail in details] == [True]
    assert (desk.topic.name, group.name) in woken(desk)
    assert stage.adapters.control.assignment(desk.topic, group) == assignment
    new_assignment = stage.adapters.control.assignment(desk.topic, neighbour)
    assert new_assignment
    assert new_assignment.members == ()


def test_what_a_broadcast_s_good_consumer_has_failed_is_tried_again(stage: Stage) -> None:
    desk = PushDesk.at(stage, mode="broadcast")
    group = desk.group("all")
    desk.subscriber(group, "bad")
    good = desk.subscriber(group, "good", behaviour=fails(1))
    desk.produce(make.draft("one"))
    damage_consumer(stage, desk.topic, group, "bad")
    desk.restart()
    desk.push()
    assert [*desk.subscribers.numbers().values()] == [[1]]
    desk.pass_time(120)
    assert [*desk.subscribers.numbers().values()] == [[1, 2]]
    assert {call.target for call in desk.subscribers.calls} == {good.target}
    with pytest.raises(Unavailable):
        desk.deps.catalog.is_registered(desk.topic, group, "of the row, perhaps")


def test_a_row_that_cannot_be_read_is_not_read_at_each_call(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group("all")
    for name in ("bad", "first", "second"):
        desk.consumer(group, name)
    damage_consumer(stage, desk.topic, group, "bad")
    fresh = stage.another()
    control = Counted(fresh.control)
    deps = Deps(replace(fresh, control=cast(Control, control)))
    uid = next(c.uid for c in deps.catalog.readable_consumers(desk.topic, group) if c.name == "first")
    for _ in range(10):
        assert len(deps.assignments.current(desk.topic, group).members) == 2
        assert deps.assignments.seat(desk.topic, group, uid, 1) is None, "ranks would differ"
        deps.registry.note_alive(desk.topic, group, uid)
    assert control.calls["consumers"] == 1
    stage.clock.advance(CACHE_MS + 1)
    deps.assignments.current(desk.topic, group)
    assert control.calls["consumers"] == 2


def test_whose_row_cannot_be_read_is_not_registered_anew(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group("all", mode="broadcast")
    desk.consumer(group, "bad")
    damage_consumer(stage, desk.topic, group, "bad")
    desk.restart()
    with pytest.raises(Unreadable):
        desk.deps.registry.register(desk.topic, group, "bad")


def test_an_acknowledgement_is_a_sign_of_life_beside_a_row_that_cannot_be_read(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group("all")
    desk.consumer(group, "bad")
    good = desk.consumer(group, "good")
    desk.produce(make.draft("one"))
    damage_consumer(stage, desk.topic, group, "bad")
    desk.restart()
    deliveries = desk.receive(group, consumer=good)
    stage.clock.advance(20_000)
    assert desk.ack(group, deliveries) == [None]
    stage.clock.advance(20_000)
    assert desk.deps.assignments.current(desk.topic, group).members == (good.uid,)


def test_a_row_that_becomes_unreadable_behind_a_cached_view_refuses_nobody(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group("all")
    for name in ("bad", "good"):
        desk.consumer(group, name)
    stage.clock.advance(CONSUMER_OFFLINE_AFTER // timedelta(milliseconds=1) - 1_000)
    assert len(desk.deps.assignments.current(desk.topic, group).members) == 2
    damage_consumer(stage, desk.topic, group, "bad")
    stage.clock.advance(2_000)
    assert desk.deps.assignments.current(desk.topic, group).members == ()


def test_a_produce_is_answered_though_a_group_cannot_be_woken(stage: Stage) -> None:
    desk = PushDesk.at(stage, wake="direct")
    bad, good = desk.group("bad"), desk.group("good")
    desk.subscriber(good, "for-good")
    damage_group(stage, desk.topic, bad, DAMAGES["damaged"])
    desk.restart()
    desk.deps.waker.wake_after_append(desk.topic, [make.message(0)])
    assert woken(desk) == {(desk.topic.name, "good")}


@pytest.mark.parametrize(("row", "damage"), [*zip(("group", "consumer", "assignment"), DAMAGES, strict=True)])
def test_the_sweep_finds_what_neighbours_have_forgotten_and_the_rest_when_it_can_be_read(
    stage: Stage, row: str, damage: str
) -> None:
    desk, bad, good = two_groups(stage)
    home = f"topic#{desk.topic.uid}"
    place = {
        "group": "group#bad",
        "consumer": f"consumer#{bad.uid}#for-bad",
        "assignment": f"assignment#{bad.uid}",
    }
    healthy: list[Item] = []

    def harm(item: Item) -> Item:
        healthy.append(item)
        return DAMAGES[damage](item)

    change_control(stage, home, place[row], harm)
    report = desk.deps.sweeper.run_once()
    troubles = [trouble for trouble in report.stretch.troubles if trouble.topic == desk.topic.name]
    assert len(troubles) == 1
    assert place[row] in troubles[0].detail
    assert (desk.topic.name, good.name) in woken(desk)
    assert any(desk.topic.name == trouble.topic for trouble in desk.deps.assigner.run_once().stretch.troubles)
    change_control(stage, home, place[row], lambda _: healthy[0])
    desk.inbox.asked.clear()
    stage.clock.advance(60_000)
    assert not [t for t in desk.deps.sweeper.run_once().stretch.troubles if t.topic == desk.topic.name]
    assert (desk.topic.name, bad.name) in woken(desk)


def aged(stage: Stage, desk: PushDesk) -> None:
    """All that lies in the topic is past its retention."""
    stage.clock.advance(desk.topic.retention_days * DAY_MS + 60_000)


@pytest.mark.parametrize("what", ["group", "cursor"])
def test_what_others_owe_is_buried_in_time_though_one_cannot_be_read(stage: Stage, what: str) -> None:
    desk = PushDesk.at(stage, retention_days=1)
    bad, good = desk.group("bad"), desk.group("good")
    desk.produce(make.draft("one"), make.draft("two"))
    for group in (bad, good):
        [first, _] = desk.receive(group)
        assert desk.ack(group, [first]) == [None]
    if what == "group":
        damage_group(stage, desk.topic, bad, DAMAGES["damaged"])
    else:
        change_cursor(stage, cursor_key(desk.topic, bad, 0), without("x"))
    aged(stage, desk)
    desk.restart()
    troubles = desk.deps.expirer.run_once().stretch.troubles
    assert [trouble.topic for trouble in troubles if trouble.topic == desk.topic.name] == [desk.topic.name]
    letters, _ = desk.deps.letter_lookup.page(desk.topic, good, DeadLetterFilter(), None, 10)
    assert [letter.offset for letter in letters] == [1]


def test_i1_what_a_broadcasts_others_owe_is_buried_in_time_though_one_cannot_be_read(stage: Stage) -> None:
    desk = PushDesk.at(stage, retention_days=1)
    group = desk.group(mode="broadcast")
    desk.consumer(group, "bad")
    good = desk.consumer(group, "good")
    desk.produce(make.draft())
    desk.nack(group, desk.receive(group, consumer=good))
    desk.produce(make.draft())
    home, place = f"topic#{desk.topic.uid}", f"consumer#{group.uid}#bad"
    change_control(stage, home, place, DAMAGES["of a later release"])
    aged(stage, desk)
    report = Deps(stage.another()).expirer.run_once()
    assert [place in trouble.detail for trouble in report.stretch.troubles] == [True]
    letters = stage.adapters.records.dead(desk.topic, group, None, 10)
    assert [(letter.key.consumer_uid, letter.offset) for _, letter in letters] == [
        (good.uid, 0),
        (good.uid, 1),
    ]
    report_of_tails = Deps(stage.another()).checkpointer.run_once()
    assert [place in trouble.detail for trouble in report_of_tails.stretch.troubles] == [True]
    assert report_of_tails.shards == 2, "the topic's, and the lane of the good one"


def test_a_topic_that_cannot_be_read_is_told_by_whoever_comes_by_all_of_them(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    change_control(stage, "topics", desk.topic.name, DAMAGES["damaged"])
    for job in (desk.deps.expirer, desk.deps.checkpointer):
        details = [trouble.detail for trouble in job.run_once().stretch.troubles]
        assert sum(desk.topic.name in detail for detail in details) == 1


def test_tails_are_written_down_though_a_group_cannot_be_read(stage: Stage) -> None:
    desk = PushDesk.at(stage, retention_days=1)
    bad = desk.group("bad")
    desk.produce(make.draft("one"))
    damage_group(stage, desk.topic, bad, DAMAGES["of a later release"])
    stage.clock.advance(DAY_MS)
    desk.restart()
    report = desk.deps.checkpointer.run_once()
    assert desk.topic.name in [trouble.topic for trouble in report.stretch.troubles]
    stage.clock.advance(_GRACE_MS + DAY_MS)
    stage.drop_expired()
    assert stage.adapters.log.tail(desk.topic.shard_key(0)).offset == 0


def test_who_has_not_agreed_and_whose_mark_was_lost_is_asked_again(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    contact = Contact(ConsumerKind.URL, "https://stranger.example/", ConsumerState.PENDING)
    desk.deps.registry.register(desk.topic, group, "stranger", contact)
    stage.clock.advance(DAY_MS)  # nobody has produced anything, and no mark is looked at any more
    assert desk.deps.assigner.run_once().agreed == 0
    desk.deps.expirer.run_once()
    assert desk.deps.assigner.run_once().agreed == 1


def test_counts_of_all_topics_go_on_without_a_group_that_cannot_be_read(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    bad, good = desk.group("bad"), desk.group("good")
    damage_group(stage, desk.topic, bad, DAMAGES["damaged"])
    [stats] = desk.deps.counts.stats([desk.topic])
    assert [*stats.groups] == [good.name]
    with pytest.raises(Unavailable, match="cannot be read"):
        desk.deps.catalog.group(desk.topic, bad.name, consistent=True)


def test_counts_of_all_topics_go_on_without_a_broadcast_one_of_whose_consumers_cannot_be_read(
    stage: Stage,
) -> None:
    desk = PushDesk.at(stage)
    groups = {mode: desk.group(mode, mode=mode) for mode in ("broadcast", "queue")}
    for group in groups.values():
        desk.consumer(group, "bad")
        damage_consumer(stage, desk.topic, group, "bad")
    desk.restart()
    [stats] = desk.deps.counts.stats([desk.topic])
    assert [*stats.groups] == ["queue"]
    survey = desk.deps.surveyor.survey(desk.topic)
    assert [each.group.name for each in survey.groups] == ["queue"]
    assert (survey.groups_left, survey.is_whole) == (1, False), "that one more is there is said"
    with pytest.raises(Unavailable, match="cannot be read"):
        desk.deps.counts.group_status(desk.topic, groups["broadcast"])


@pytest.mark.parametrize("mode", ["broadcast", "queue"])
def test_meters_are_read_beside_a_group_that_cannot_be_counted_which_is_said(stage: Stage, mode: str) -> None:
    desk = PushDesk.at(stage)
    bad, good = desk.group("bad", mode=mode), desk.group("good")
    if mode == "broadcast":
        desk.consumer(bad, "bad")
        damage_consumer(stage, desk.topic, bad, "bad")
    else:
        damage_group(stage, desk.topic, bad, DAMAGES["damaged"])
    desk.produce(make.draft("one"))
    desk.restart()
    reading = desk.deps.surveyor.reading(desk.topic)
    assert (reading.accepted, [*reading.groups], reading.is_whole) == (1, [good.name], False)
    survey = desk.deps.surveyor.survey(desk.topic)
    assert (survey.groups_left, survey.is_whole, survey.has_all_shards) == (1, False, True)


def test_a_consumer_that_comes_beside_a_row_that_cannot_be_read_is_found_at_once(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group("all")
    desk.consumer(group, "bad")
    damage_consumer(stage, desk.topic, group, "bad")
    fresh = stage.another()
    control = Preceded(fresh.control, "consumer", lambda: desk.consumer(group, "new"))
    deps = Deps(replace(fresh, control=cast(Control, control)))
    assert deps.catalog.consumer(desk.topic, group, "new").name == "new"
    with pytest.raises(NotFound):
        deps.catalog.consumer(desk.topic, group, "nobody")


@pytest.mark.parametrize("mode", ["queue", "broadcast"])
@pytest.mark.parametrize("what", ["group", "consumer"])
def test_what_cannot_be_read_is_deleted_with_its_topic(stage: Stage, mode: str, what: str) -> None:
    desk = PushDesk.at(stage, mode=mode)
    bad, good = desk.group("bad"), desk.group("good")
    for group in (bad, good):
        desk.consumer(group, "one")
    if what == "group":
        damage_group(stage, desk.topic, bad, DAMAGES["damaged"])
    else:
        damage_consumer(stage, desk.topic, bad, "one")
    desk.restart()
    admin, control = desk.deps.admin, desk.deps.adapters.control
    admin.delete_topic(admin.topic_to_delete(desk.topic.name))
    assert control.topic(desk.topic.name) is None
    assert control.retired_topics(desk.topic.name) == []
    assert not control.groups(desk.topic)
    assert not control.consumers(desk.topic, bad)


@pytest.mark.parametrize("mode", ["queue", "broadcast"])
def test_a_consumer_that_cannot_be_read_is_deleted_with_its_group(stage: Stage, mode: str) -> None:
    desk = PushDesk.at(stage, mode=mode)
    group = desk.group("bad")
    desk.consumer(group, "one")
    damage_consumer(stage, desk.topic, group, "one")
    desk.restart()
    admin, control = desk.deps.admin, desk.deps.adapters.control
    admin.delete_group(desk.topic, admin.group_to_delete(desk.topic, "bad"))
    assert control.consumers(desk.topic, group) == []
    assert admin.put_group(desk.topic, "bad", {"mode": mode})[1]
