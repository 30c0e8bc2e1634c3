"""Meters on both stores: who is read, when no more, and what charts show of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain.errors import Unavailable
from chalicelib.domain.meter import HOURS, LEVELS, MINUTES, STAGE, WINDOWS, GroupReading, Reading
from chalicelib.domain.times import DAY_MS, HOUR_MS, MINUTE_MS
from chalicelib.domain.topic import Topic
from chalicelib.scheduler.meter_reader import MeterReader, State
from chalicelib.services.consume.settle import Nack
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.damage import change_reading, having
from tests.support.desk import Desk
from tests.support.stages import Stage
from tests.support.troubled import Troubled


def test_readings_of_a_level_come_back_in_order_of_time(stage: Stage) -> None:
    readings, uid = stage.adapters.readings, make.uid("t")
    for n in (3, 1, 2):
        at_ms = START_MS + n * MINUTE_MS + 7
        readings.keep(uid, MINUTES, Reading(at_ms, n, {"mailer": GroupReading(n, 9, 1)}))
    newest = readings.latest(uid, MINUTES, 2)
    assert [each.accepted for each in newest] == [2, 3]
    assert newest[1] == Reading(START_MS + 3 * MINUTE_MS + 7, 3, {"mailer": GroupReading(3, 9, 1)})
    assert readings.latest(uid, HOURS, 9) == []


def test_backlogs_by_shard_come_back(stage: Stage) -> None:
    readings, uid = stage.adapters.readings, make.uid("t")
    groups = {"a": GroupReading(3, 0, 0, (0, 0)), "b": GroupReading(1, 7, 0, (5, 2)), "c": GroupReading(0, 9)}
    readings.keep(uid, MINUTES, Reading(START_MS, 9, groups))
    (reading,) = readings.latest(uid, MINUTES, 1)
    assert [[reading.groups[name].backlog_of(shard) for shard in range(3)] for name in "abc"] == [
        [0, 0, 0],
        [5, 2, 0],
        [None, None, None],
    ]


@pytest.mark.parametrize("groups", [1, 8, 40])
def test_a_reading_is_one_write_unit_and_those_furthest_behind_are_kept_by_shard(
    stage: Stage, groups: int
) -> None:
    shards = 16
    meters = {f"group-{n}": GroupReading(10**6, shards * n, 0, (n,) * shards) for n in range(1, groups + 1)}
    uid = make.uid("t")
    with stage.adapters.units() as units:
        stage.adapters.readings.keep(uid, HOURS, Reading(START_MS, 10**8, meters))
        (reading,) = stage.adapters.readings.latest(uid, HOURS, 1)
    assert units.reads <= 0.5
    assert reading.groups == meters
    names = {name for name, each in reading.groups.items() if each.backlog_of(0) is not None}
    if groups < 40:
        assert f"group-{groups}" in names
    assert groups > 1 or names == {"group-1"}


def test_a_level_holds_one_reading_of_its_time(stage: Stage) -> None:
    readings, uid = stage.adapters.readings, make.uid("t")
    for n in (1, 2):
        readings.keep(uid, HOURS, Reading(START_MS + n * MINUTE_MS, n))
    assert [each.accepted for each in readings.latest(uid, HOURS, 9)] == [2]


@pytest.mark.parametrize("text", ["[", '{"mailer": 7}', '{"mailer": [1, 2]}'])
def test_a_reading_that_cannot_be_read_is_a_gap_and_stops_no_run(empty_stage: Stage, text: str) -> None:
    """The meter reader is the last of the sweep's works, before it reports its counts."""
    readings: Any = empty_stage.adapters.readings
    desk = Desk.at(empty_stage)
    desk.produce(make.draft())
    readings.keep(desk.topic.uid, MINUTES, Reading(START_MS, 1))
    readings.keep(desk.topic.uid, MINUTES, Reading(START_MS + MINUTE_MS, 2))
    change_reading(empty_stage, desk.topic.uid, MINUTES, START_MS + MINUTE_MS, having("g", {"S": text}))
    assert [each.accepted for each in readings.latest(desk.topic.uid, MINUTES, 9)] == [1]
    note(desk)
    desk.stage.clock.advance(HOUR_MS)
    run(desk)
    assert [each.accepted for each in readings.latest(desk.topic.uid, HOURS, 1)] == [1]


def run(desk: Desk) -> None:
    """A minute later, the meter reader."""
    desk.stage.clock.advance(MINUTE_MS)
    desk.deps.meter_reader.run_once(desk.stage.adapters.marks.each_minute().moving)


def note(desk: Desk) -> None:
    desk.deps.marker.note_topics_of([str(desk.topic.shard_key(0))])


def is_noted(desk: Desk) -> bool:
    return desk.topic.name in desk.stage.adapters.marks.each_minute().moving


def test_a_topic_is_read_while_something_moves_and_then_no_more(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    note(desk)
    desk.produce(*make.drafts(60))
    run(desk)
    desk.ack(group, desk.receive(group, 20))
    run(desk)
    assert is_noted(desk), "a consumer is at work"
    run(desk)
    assert not is_noted(desk), "the same was read twice"
    readings = [
        each for level in LEVELS for each in stage.adapters.readings.latest(desk.topic.uid, level, 99)
    ]
    assert sorted((each.accepted, each.groups["billing"].settled) for each in readings) == [
        (60, 0),
        (60, 20),
        (60, 20),
    ]
    note(desk)
    assert is_noted(desk), "what comes later is seen"


@pytest.mark.parametrize("mode", ["queue", "serial", "broadcast"])
def test_what_a_group_does_not_get_is_no_backlog_a_minute_later(stage: Stage, mode: str) -> None:
    desk = Desk.at(stage, shards=2, mode=mode)
    group, paused = desk.group(tags=("paid",)), desk.group("paused", tags=("paid",))
    consumers = [desk.consumer(each, "desk") for each in (group, paused)]
    desk.deps.admin.pause(desk.topic, "paused", True)
    note(desk)
    desk.produce(*(make.draft(shard=0, tag="sent") for _ in range(1_200)))
    desk.produce(*(make.draft(n, shard=1, tag="paid" if n in (3, 4) else "sent") for n in range(6)))
    run(desk)
    exact = {each.group.name: each for each in desk.deps.surveyor.exact_topic(desk.topic).groups}
    assert (exact["billing"].backlog, exact["billing"].account.skipped) == (3, 1_203)
    assert exact["paused"].backlog == 1_206, "its filter may be changed before it goes on"
    uid = consumers[0].uid if mode == "broadcast" else ""
    cursors = [desk.cursor(group, shard, uid) for shard in range(2)]
    desk.produce(make.draft(shard=1, tag="sent"))
    run(desk)
    assert [desk.cursor(group, shard, uid) for shard in range(2)] == cursors, "nothing is written in vain"
    assert desk.receive(group, 10, consumers[0])[0].message.draft.body == b"3"


def test_a_topic_that_cannot_be_read_takes_no_turn_of_the_others(stage: Stage) -> None:
    bad, good = Desk.at(stage).topic, Desk.at(stage).topic
    a, turns = stage.adapters, list[str]()

    def read(topic: Topic) -> Reading:
        turns.append(topic.name)
        if topic == bad:
            raise Unavailable("UNAVAILABLE", "It is throttled.")
        return Reading(stage.clock.now_ms(), len(turns))

    reader = MeterReader(
        control=a.control,
        marks=a.marks,
        readings=a.readings,
        read=read,
        see=lambda _: State(0, has_backlog=True),
        settle_unwanted=lambda *_: None,
        note_changes=a.marks.note_changes,
    )
    for _ in range(6):
        stage.clock.advance(MINUTE_MS)
        has_time = iter([True])
        reader.run_once({bad.name, good.name}, lambda has_time=has_time: next(has_time, False))  # type: ignore[misc]
    assert sorted(turns) == sorted(3 * [bad.name, good.name])


def test_charts_show_what_was_accepted_settled_and_behind(stage: Stage) -> None:
    desk = Desk.at(stage, shards=2)
    billing = desk.group()
    note(desk)
    for _ in range(5):
        desk.produce(*make.drafts(60))
        desk.ack(billing, desk.receive(billing, 30))
        run(desk)
    points = desk.deps.board.rates(desk.topic, WINDOWS["1h"], desk.deps.surveyor.reading(desk.topic))
    rates = [each.accepted for each in points if each.accepted is not None]
    assert rates == pytest.approx([1.0] * 4)
    groups = [each.groups["billing"] for each in points]
    rates_of_group = [group.settled for group in groups if group.settled is not None]
    assert rates_of_group == pytest.approx([0.5] * 4)
    assert points[-1].groups["billing"].backlog == 150
    (day,) = [each for each in desk.deps.board.rates(desk.topic, WINDOWS["24h"], None) if each.accepted]
    assert day.accepted == pytest.approx(1.0)


def test_retries_show_apart(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(3))
    desk.nack(group, desk.receive(group, 3), Nack(delay_ms=5_000))
    stage.clock.advance(DAY_MS // 24)
    again = desk.receive(group, 3)
    assert len(again) == 3
    reading = desk.deps.surveyor.reading(desk.topic)
    assert reading.groups["billing"] == GroupReading(settled=3, backlog=0, retried=3)


def test_a_topic_that_is_gone_is_let_go(stage: Stage) -> None:
    desk = Desk.at(stage)
    note(desk)
    desk.deps.admin.delete_topic(desk.topic)
    stage.clock.advance(HOUR_MS)
    run(desk)
    assert not is_noted(desk)


def test_a_topic_is_noted_once_a_minute_and_of_a_lane_its_own(stage: Stage) -> None:
    desk = Desk.at(stage)
    notes = desk.deps.marker
    lane = f"{desk.topic.name}~billing:uid/0"
    notes.note_topics_of([lane])
    assert is_noted(desk)
    stage.adapters.marks.note_at_rest(desk.topic.name)
    notes.note_topics_of([lane])
    assert not is_noted(desk), "it was noted a moment ago"
    stage.clock.advance(MINUTE_MS + 1)
    notes.note_topics_of([lane])
    assert is_noted(desk)


def test_a_stage_at_rest_writes_nothing(stage: Stage) -> None:
    desk = Desk.at(stage)
    desk.produce(*make.drafts(3))
    note(desk)
    for _ in range(3):
        run(desk)
    assert not is_noted(desk)
    before = stage.adapters.readings.latest(desk.topic.uid, MINUTES, 99)
    run(desk)
    assert stage.adapters.readings.latest(desk.topic.uid, MINUTES, 99) == before


def troubled(desk: Desk) -> int:
    return desk.stage.adapters.marks.each_minute().troubled.get(desk.topic.name, 0)


def look_again(desk: Desk) -> None:
    """A minute later, for the sake of what is noted as troubled."""
    desk.stage.clock.advance(MINUTE_MS)
    troubles = desk.stage.adapters.marks.each_minute().troubled
    mine = {name: rank for name, rank in troubles.items() if name == desk.topic.name}
    desk.deps.meter_reader.run_once(set(), troubled_topics=mine)


def test_what_is_wrong_with_a_topic_is_noted_when_it_comes_to_rest(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    note(desk)
    desk.produce(*make.drafts(2))
    for _ in range(3):
        run(desk)
    rank = troubled(desk)
    assert rank
    assert not is_noted(desk)
    (first, second) = desk.receive(group, 2)
    desk.nack(group, [first], Nack(dead_letter=True))
    desk.ack(group, [second])
    look_again(desk)
    assert 0 < troubled(desk) < rank, "what stands still is worse than a dead letter"
    marks = stage.adapters.marks
    assert marks.worst(500)[desk.topic.name] == troubled(desk)
    desk.deps.admin.delete_topic(desk.topic)
    stage.clock.advance(HOUR_MS)
    look_again(desk)
    assert troubled(desk) == 0


def test_the_worst_are_told_first(stage: Stage) -> None:
    marks = stage.adapters.marks
    names = [make.uid(f"t{n}") for n in range(3)]
    for name, rank in zip(names, (1, 5, 9), strict=True):
        marks.note_trouble(name, rank)
    marks.watch(names[0], 7)
    marks.note_moving(names[0])
    assert len(marks.worst(1)) == 1
    assert [name for name in marks.worst(500) if names[0][2:] in name] == [names[0]], "whoever else is noted"
    mine = [name for name in marks.worst(500) if name in names]
    assert mine == [names[2], names[1], names[0]]
    marks.note_trouble(names[1], 2, 5)
    marks.note_trouble(names[2], 0, 9)
    ranks = {name: rank for name, rank in marks.worst(500).items() if name in names}
    assert ranks == {names[1]: 2, names[0]: 1}
    marks.note_trouble(names[0], 1, 1)
    each_minute = marks.each_minute()
    assert {name: rank for name, rank in each_minute.troubled.items() if name in names} == ranks
    assert [each for each in each_minute.watched.items() if names[0] in each[0]] == [(names[0], 7)]
    assert [key for key in each_minute.moving if names[0] in key] == [names[0]]
    marks.unwatch(names[0])
    marks.note_at_rest(names[0])
    for name, rank in ranks.items():
        marks.note_trouble(name, 0, rank)


def test_a_topic_that_two_noted_at_once_is_as_bad_as_the_worse(stage: Stage) -> None:
    marks, name = stage.adapters.marks, make.uid("t")
    for rank in (2, 5):
        marks.note_trouble(name, rank)
    assert marks.worst(500)[name] == marks.each_minute().troubled[name] == 5
    for rank in (2, 5):
        marks.note_trouble(name, 0, rank)
    assert name not in marks.worst(500)


def of_stage(stage: Stage) -> tuple[int, int]:
    """What was accepted and settled in the stage's life, as its own meters show it."""
    rows = stage.adapters.readings.latest(STAGE, HOURS, 1)
    return (rows[-1].accepted, rows[-1].groups[""].settled) if rows else (0, 0)


def test_the_stages_own_meters_are_the_sum_of_all_topics(stage: Stage) -> None:
    before = of_stage(stage)
    first, second = Desk.at(stage), Desk.at(stage)
    group = first.group()
    for desk, number in ((first, 5), (second, 7)):
        note(desk)
        desk.produce(*make.drafts(number))
    first.ack(group, first.receive(group, 3))
    stage.clock.advance(MINUTE_MS)
    mine = {first.topic.name, second.topic.name}
    for _ in range(3):
        first.deps.meter_reader.run_once(mine)
    accepted_sum, settled_sum = of_stage(stage)
    assert (accepted_sum - before[0], settled_sum - before[1]) == (12, 3), "each is counted once"


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_sum_whose_answer_was_lost_is_counted_once(stage: Stage, is_kept: bool) -> None:
    desk, losses = Desk.at(stage), iter([True])
    readings: Any = Troubled(
        stage.adapters.readings,
        lambda name, uid, *_: (name, uid) == ("keep", STAGE) and next(losses, False),
        after=is_kept,
    )
    reader = Deps(replace(stage.another(), readings=readings)).meter_reader
    before, sums = of_stage(stage)[0], []
    for number in (60, 5, 0):
        desk.produce(*make.drafts(number))
        stage.clock.advance(MINUTE_MS)
        reader.run_once({desk.topic.name})
        sums.append(of_stage(stage)[0] - before)
    assert sums == [60 if is_kept else 0, 65, 65]
