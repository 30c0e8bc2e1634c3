"""Retention: a settled message goes with its row; an unsettled one becomes a dead letter first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from chalicelib.domain.call_result import CallResult, PushBatch, Verdict
from chalicelib.domain.ladder import Retry
from chalicelib.domain.record import DeadLetter
from chalicelib.domain.times import DAY_MS, HOUR_MS, SECOND_MS
from chalicelib.domain.topic import ConsumerKind, ConsumerState, Group
from chalicelib.services.consume.settle import Nack
from chalicelib.services.manage.registry import Contact
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.desk import Desk
from tests.support.push import PushDesk, fails
from tests.support.stages import Stage
from tests.support.troubled import Troubled


def letters(desk: Desk, group: Group) -> list[DeadLetter]:
    return [letter for _, letter in desk.deps.adapters.records.dead(desk.topic, group, None, 100)]


def test_what_a_group_still_owes_is_a_dead_letter_before_its_row_goes(empty_stage: Stage) -> None:
    desk = Desk.at(empty_stage, retention_days=2)
    group, done_group = desk.group(), desk.group("done")
    desk.produce(*(make.draft({"n": n}) for n in range(3)))
    desk.drain(done_group)
    empty_stage.clock.advance(DAY_MS)
    desk.produce(make.draft("young"))
    empty_stage.clock.advance(DAY_MS - 1)
    assert desk.deps.expirer.run_once().buried == 0
    empty_stage.clock.advance(2)
    assert desk.deps.expirer.run_once().buried == 3
    dead_letters = letters(desk, group)
    assert [(x.offset, x.reason, x.message.draft.body) for x in dead_letters] == [
        (n, "EXPIRED", b'{"n":%d}' % n) for n in range(3)
    ]
    empty_stage.clock.advance(DAY_MS - HOUR_MS)
    empty_stage.drop_expired()
    assert [d.message.offset for d in desk.receive(group)] == [3]
    assert letters(desk, done_group) == []


def test_what_waits_in_a_serial_group_and_in_a_broadcast_is_buried_as_well(empty_stage: Stage) -> None:
    desk = Desk.at(empty_stage, retention_days=1)
    serial, everyone = desk.group("serial", mode="serial"), desk.group("everyone", mode="broadcast")
    consumer = desk.consumer(everyone, "a")
    desk.produce(make.draft("x", ordering_key="k"), make.draft("y", ordering_key="k"))
    desk.nack(serial, desk.receive(serial), Nack(delay_ms=3 * DAY_MS))
    empty_stage.clock.advance(DAY_MS + 1)
    assert desk.deps.expirer.run_once().buried == 4
    assert {x.reason for x in letters(desk, serial) + letters(desk, everyone)} == {"EXPIRED"}
    assert [x.key.consumer_uid for x in letters(desk, serial)] == ["", ""]
    assert [x.key.consumer_uid for x in letters(desk, everyone)] == [consumer.uid] * 2


def test_a_broadcast_whose_consumers_cannot_be_read_keeps_no_other_group_from_its_letters(
    empty_stage: Stage,
) -> None:
    desk = Desk.at(empty_stage, retention_days=1)
    everyone, behind = desk.group("a", mode="broadcast"), desk.group("b")
    desk.consumer(everyone, "one")
    desk.produce(make.draft())
    empty_stage.clock.advance(DAY_MS + 1)
    there = empty_stage.another()
    control = Troubled(
        there.control, lambda name, *call: name == "cursor_owners" and call[1].name == everyone.name
    )
    report = Deps(replace(there, control=cast(Any, control))).expirer.run_once()
    assert (control.refused, report.buried, len(report.stretch.troubles)) == (1, 1, 1)
    assert [len(letters(desk, group)) for group in (everyone, behind)] == [0, 1]
    assert desk.deps.expirer.run_once().buried == 1, "the broadcast's turn comes with the next run"


def test_runs_that_have_no_time_for_a_whole_topic_come_by_what_all_its_consumers_owe(
    empty_stage: Stage,
) -> None:
    desk = Desk.at(empty_stage, shards=2, retention_days=1)
    group = desk.group(mode="broadcast")
    for name in "abcd":
        desk.consumer(group, name)
    desk.produce(make.draft(shard=0), make.draft(shard=1))
    empty_stage.clock.advance(DAY_MS + 1)
    buried: list[int] = []
    for _ in range(24):
        answers = iter(range(3))  # before the topic, after a cursor, before the next one
        report = desk.deps.expirer.run_once(lambda: next(answers, None) is not None)  # noqa: B023
        assert not report.stretch.finished
        buried.append(report.buried)
    assert max(buried) <= 2
    assert len(letters(desk, group)) == sum(buried) == 8


def test_what_is_under_way_is_left_to_its_holder(empty_stage: Stage) -> None:
    desk = Desk.at(empty_stage, retention_days=1)
    group = desk.group()
    desk.produce(make.draft())
    empty_stage.clock.advance(DAY_MS - SECOND_MS)
    messages = desk.receive(group, lease=3600)
    empty_stage.clock.advance(2 * SECOND_MS)
    assert desk.deps.expirer.run_once().buried == 0
    assert desk.ack(group, messages) == [None]


def test_a_retry_that_outlives_its_row_takes_the_content_along(empty_stage: Stage) -> None:
    desk = PushDesk.at(empty_stage, retention_days=1, retry=Retry(3, (4 * 86_400,), jitter=0.0))
    group = desk.group()
    desk.subscriber(group, "one", behaviour=fails(1))
    (result,) = desk.produce(make.draft({"n": 1}))
    desk.push()
    empty_stage.clock.advance(4 * DAY_MS - 5 * SECOND_MS)
    empty_stage.drop_expired()
    bodies: list[bytes] = []

    def takes(push_batch: PushBatch) -> CallResult:
        bodies.append(push_batch.attempts[0].message.draft.body)
        return CallResult(Verdict.DONE)

    desk.subscribers.behaviours["one"] = takes
    desk.pass_time(10)
    assert bodies == [b'{"n":1}']
    assert desk.subscribers.numbers() == {result.id: [1, 2]}


def test_a_retry_that_may_have_to_wait_in_its_lane_takes_the_content_along(empty_stage: Stage) -> None:
    desk = PushDesk.at(empty_stage, retention_days=1, retry=Retry(3, (36 * 3_600,), jitter=0.0))
    group = desk.group()
    desk.subscriber(group, "one", behaviour=fails(1))
    (result,) = desk.produce(make.draft({"n": 1}))
    desk.push()
    desk.deps.admin.pause(desk.topic, group.name, True)
    empty_stage.clock.advance(36 * HOUR_MS - 5 * SECOND_MS)
    desk.pass_time(10)
    empty_stage.clock.advance(18 * HOUR_MS)
    empty_stage.drop_expired()
    assert empty_stage.adapters.log.read(desk.topic.shard_key(0), 0, 1, consistent=True) == []
    desk.deps.admin.pause(desk.topic, group.name, False)
    desk.pass_time(61)
    assert desk.subscribers.numbers() == {result.id: [1, 2]}


def test_the_attempts_whose_leases_ran_out_are_in_the_trace_of_what_is_buried(empty_stage: Stage) -> None:
    """Here and in the lane; also of a neighbour that is kept, whose lease the same write takes back."""
    desk = Desk.at(empty_stage, retry=Retry(3, (1,), jitter=0.0))
    group = desk.group()
    one = desk.consumer(group, "one")
    last = make.draft("last", max_attempts=1)
    once_more = [make.draft(n, max_attempts=n) for n in (2, 3)]
    results = desk.produce(last, make.draft("kept"), *once_more)
    messages = desk.receive(group, consumer=one, lease=10)
    desk.nack(group, messages[2:], Nack())
    empty_stage.clock.advance(2 * SECOND_MS)
    assert len(desk.receive(group, consumer=one, lease=8)) == 2, "in the lane"
    empty_stage.clock.advance(9 * SECOND_MS)
    assert desk.deps.expirer.run_once().buried == 2
    lapsed, exhausted = ("delivered", "LAPSED", "one"), ("buried", "DEAD", None)
    paths = [
        [(e.event, e.outcome, e.consumer) for e in desk.trace(result.id) if e.outcome not in (None, "RETRY")]
        for result in results
    ]
    assert paths == [[lapsed, exhausted], [lapsed], [lapsed, exhausted], [lapsed]]
    assert [event.at_ms - START_MS for event in desk.trace(results[3].id) if event.outcome] == [
        0,
        10 * SECOND_MS,
    ]
    assert [e.attempt for e in desk.trace(results[2].id) if e.outcome] == [1, 2, 2]


def test_a_redriven_message_has_a_retention_of_its_own_in_the_lane(empty_stage: Stage) -> None:
    desk = Desk.at(empty_stage, retention_days=1)
    group = desk.group()
    (result,) = desk.produce(make.draft())
    empty_stage.clock.advance(3 * DAY_MS)
    desk.deps.expirer.run_once()
    desk.deps.dead_letters.redrive(desk.topic, group, letters(desk, group))
    empty_stage.clock.advance(DAY_MS - HOUR_MS)
    assert desk.deps.expirer.run_once().buried == 0
    assert [d.message.id for d in desk.receive(group)] == [result.id]


def test_what_goes_behind_what_is_kept_for_longer_is_buried_and_the_other_delivered(
    empty_stage: Stage,
) -> None:
    desk = Desk.at(empty_stage, retention_days=7)
    groups = desk.group("queue"), desk.group("serial", mode="serial")
    desk.produce(make.draft("long", ordering_key="k"))
    desk.produce(make.draft("short", ordering_key="k", expires_ms=empty_stage.clock.now_ms() + DAY_MS))
    empty_stage.clock.advance(DAY_MS + SECOND_MS)
    assert desk.deps.expirer.run_once().buried == 2
    empty_stage.clock.advance(DAY_MS)
    empty_stage.drop_expired()
    for group in groups:
        assert [x.message.draft.body for x in letters(desk, group)] == [b'"short"']
        assert [d.message.draft.body for d in desk.receive(group)] == [b'"long"']


def test_who_has_not_agreed_and_whose_mark_was_lost_is_asked_again(empty_stage: Stage) -> None:
    desk = PushDesk.at(empty_stage)
    group = desk.group()
    contact = Contact(ConsumerKind.URL, "https://stranger.example/", ConsumerState.PENDING)
    desk.deps.registry.register(desk.topic, group, "stranger", contact)
    empty_stage.clock.advance(DAY_MS)  # nothing was produced, and no mark is looked at any more
    assert desk.deps.assigner.run_once().agreed == 0
    desk.deps.expirer.run_once()
    assert desk.deps.assigner.run_once().agreed == 1


def test_a_consumer_that_expired_or_skips_leaves_no_dead_letters(empty_stage: Stage) -> None:
    desk = Desk.at(empty_stage, retention_days=1, shards=1)
    kept, skipping = desk.group("kept", mode="broadcast"), desk.group("s", mode="broadcast", offline="skip")
    for group, seconds in ((kept, 3600), (skipping, None)):
        contact = Contact(expires_after_seconds=seconds)
        desk.deps.registry.register(desk.topic, group, "c", contact)
    desk.produce(make.draft("x"))
    empty_stage.clock.advance(DAY_MS + 1)
    assert desk.deps.expirer.run_once().buried == 0
    assert letters(desk, kept) + letters(desk, skipping) == []
    control = empty_stage.adapters.control
    assert [len(control.consumers(desk.topic, group)) for group in (kept, skipping)] == [0, 1]
