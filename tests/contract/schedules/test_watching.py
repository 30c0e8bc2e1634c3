"""The watch measures backlogs that have an alarm, and costs next to nothing in an idle stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest

from chalicelib.domain.errors import Refused
from chalicelib.domain.mark import EachMinute
from chalicelib.domain.message import Draft
from chalicelib.domain.times import HOUR_MS, MINUTE_MS
from chalicelib.scheduler.watch import Backlog, Watch
from chalicelib.store.marks import Marks
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.desk import Desk
from tests.support.stages import Stage


class Counting:
    """Notes the calls of ports."""

    def __init__(self, port: Any, calls: list[str]) -> None:
        self._port, self._calls = port, calls

    def __getattr__(self, name: str) -> Any:
        self._calls.append(name)
        return getattr(self._port, name)


@pytest.fixture
def desk(stage: Stage) -> Desk:
    """The only watched topic there is."""
    for name in stage.adapters.marks.each_minute().watched:
        stage.adapters.marks.unwatch(name)
    return Desk.at(stage, shards=2, alarm_backlog=2)


def watch_of(desk: Desk, calls: list[str] | None = None) -> Watch:
    a, notes = desk.stage.another(), [] if calls is None else calls
    control, log, cursors = (cast(Any, Counting(port, notes)) for port in (a.control, a.log, a.cursors))
    return Deps(replace(a, control=control, log=log, cursors=cursors)).watch


def seen(watch: Watch) -> list[tuple[str, int]]:
    return [(backlog.group, backlog.messages) for backlog in watch.run_once().backlogs]


class NotedBeside(dict[str, int]):
    """Watched topics, beside whose comparison another run notes one."""

    def __init__(self, watched: Mapping[str, int], note: Callable[[], object]) -> None:
        super().__init__(watched)
        self._note = note

    def __contains__(self, name: object) -> bool:
        self._note()
        return super().__contains__(name)


class MarksBeside:
    """Marks that another run of the process reads, too."""

    def __init__(self, marks: Marks, note: Callable[[], object]) -> None:
        self._marks, self._note = marks, note

    def __getattr__(self, name: str) -> Any:
        return getattr(self._marks, name)

    def each_minute(self) -> EachMinute:
        each_minute = self._marks.each_minute()
        return replace(each_minute, watched=NotedBeside(each_minute.watched, self._note))


def both_shards(count: int) -> list[Draft]:
    return [make.draft(shard=n % 2) for n in range(count)]


def test_a_message_that_waits_for_long_is_told_though_another_group_owes_more(desk: Desk) -> None:
    busy, stuck = desk.group("busy"), desk.group("stuck")
    desk.produce(make.draft(shard=0))
    desk.drain(busy)
    desk.stage.clock.advance(5 * HOUR_MS)
    desk.produce(*both_shards(4))
    desk.ack(stuck, [each for each in desk.receive(stuck) if each.message.offset or each.message.shard])
    (backlog,) = watch_of(desk).run_once().backlogs
    assert (backlog.group, backlog.messages) == ("busy", 4)
    assert backlog.age_ms == 5 * HOUR_MS


def test_a_run_beside_which_another_notes_a_topic_looks_at_all(desk: Desk) -> None:
    """As where the local service's clock is moved beside its schedule: it failed."""
    desk.group()
    watch = watch_of(desk)
    assert seen(watch) == []
    desk.produce(*both_shards(3))
    other = Desk.at(desk.stage, shards=1, alarm_backlog=2).topic
    watch.marks = cast(Any, MarksBeside(watch.marks, lambda: watch._current_entry(other.name, 0)))
    assert seen(watch) == [("billing", 3)]


def test_a_topic_that_was_made_again_is_not_taken_for_the_one_before(desk: Desk) -> None:
    desk.deps.admin.put_topic(desk.topic.name, {"alarm_backlog": 9})
    desk.group()
    watch = watch_of(desk)
    assert seen(watch) == []
    admin = desk.deps.admin
    admin.delete_topic(desk.topic)
    topic, _ = admin.put_topic(desk.topic.name, {"shards": 2, "alarm_backlog": 2})
    again = Desk(desk.stage, desk.deps, topic)
    again.group()
    again.produce(*both_shards(3))
    assert seen(watch) == [("billing", 3)]


def test_the_group_that_is_furthest_behind_counts_and_so_does_its_oldest_message(desk: Desk) -> None:
    quick, slow = desk.group("quick"), desk.group("slow")
    watch = watch_of(desk)
    assert seen(watch) == []
    desk.produce(*both_shards(3))
    desk.stage.clock.advance(60_000)
    desk.produce(*both_shards(2))
    desk.drain(quick)
    desk.ack(slow, desk.receive(slow, 1))
    desk.stage.clock.advance(60_000)
    [backlog] = watch.run_once().backlogs
    assert backlog == Backlog(desk.topic.name, "slow", 4, 120_000, 2)
    assert backlog.is_over
    desk.drain(slow)
    assert seen(watch)[0][1] == 0, "once, after the last"
    assert seen(watch) == []


def test_a_group_with_metrics_is_measured_without_an_alarm_until_it_has_none_any_more(desk: Desk) -> None:
    admin, marks = desk.deps.admin, desk.stage.adapters.marks
    topic, _ = admin.put_topic(desk.topic.name, {"alarm_backlog": None})
    other = desk.group("other")
    group, _ = admin.put_group(topic, "metered", {"metrics": True, "begin": "earliest"})
    watch = watch_of(desk)
    desk.produce(*both_shards(3))
    desk.stage.clock.advance(MINUTE_MS)
    desk.drain(other)
    report = watch.run_once()
    assert [(each.group, each.messages, each.age_ms) for each in report.metered] == [
        ("metered", 3, MINUTE_MS)
    ]
    assert not report.backlogs, "metrics of the topic cost, too"
    assert not report.over
    desk.drain(group)
    assert [each.messages for each in watch.run_once().metered] == [0], "once, after the last"
    assert watch.run_once().metered == []
    for end in (
        partial(admin.put_group, topic, group.name, {"metrics": False}),
        partial(admin.delete_group, topic, group),
    ):
        admin.put_group(topic, "metered", {"metrics": True})
        assert group.mark in marks.each_minute().watched
        end()
        assert group.mark not in marks.each_minute().watched
    admin.put_group(topic, "metered", {"metrics": True})
    admin.delete_topic(topic)
    watch_of(desk).run_once()
    assert not marks.each_minute().watched


def test_fifty_groups_of_a_stage_may_have_metrics(desk: Desk) -> None:
    admin, marks = desk.deps.admin, desk.stage.adapters.marks
    admin.put_group(desk.topic, "first", {"metrics": True})
    for n in range(49):
        marks.watch(f"elsewhere#{n}", 0)
    with pytest.raises(Refused, match="50 groups"):
        admin.put_group(desk.topic, "one-more", {"metrics": True})
    admin.put_group(desk.topic, "first", {"metrics": True, "batch_size": 2})
    admin.put_group(desk.topic, "first", {"metrics": False})
    admin.put_group(desk.topic, "one-more", {"metrics": True})
    for n in range(49):
        marks.unwatch(f"elsewhere#{n}")


def test_what_is_settled_out_of_order_is_no_backlog(desk: Desk) -> None:
    group = desk.group()
    desk.produce(*(make.draft(shard=0) for _ in range(5)))
    messages = desk.receive(group, 5)
    desk.ack(group, messages[2:4])
    assert seen(watch_of(desk)) == [(group.name, 3)]


def test_in_a_broadcast_the_consumer_that_is_furthest_behind_counts(desk: Desk) -> None:
    group = desk.group("all", mode="broadcast")
    one, some, _ = (desk.consumer(group, name) for name in ("one", "some", "other"))
    desk.produce(*both_shards(3))
    desk.drain(group, consumer=one)
    desk.ack(group, desk.receive(group, 1, some))
    assert seen(watch_of(desk)) == [("all", 3)]


def test_a_backlog_is_over_its_alarm_when_it_is_more(desk: Desk) -> None:
    desk.group()
    desk.produce(*both_shards(2))
    assert not watch_of(desk).run_once().over
    desk.produce(make.draft(shard=0))
    assert [each.messages for each in watch_of(desk).run_once().over] == [3]


def test_a_backlog_is_as_old_as_its_oldest_message(desk: Desk) -> None:
    group = desk.group()
    for _ in range(3):
        desk.produce(make.draft(shard=0))
        desk.stage.clock.advance(MINUTE_MS)
    assert [each.age_ms for each in watch_of(desk).run_once().backlogs] == [3 * MINUTE_MS]
    desk.ack(group, desk.receive(group, 1))
    assert [each.age_ms for each in watch_of(desk).run_once().backlogs] == [2 * MINUTE_MS]


def test_a_topic_at_rest_is_looked_at_by_its_tails_alone_and_now_and_then_wholly(desk: Desk) -> None:
    group = desk.group()
    desk.produce(*both_shards(4))
    desk.drain(group)
    calls: list[str] = []
    watch = watch_of(desk, calls)
    watch.run_once()
    calls.clear()
    for _ in range(10):
        assert watch.run_once().backlogs == []
    assert calls == ["read_back"] * 2 * 10
    desk.seek(group, 0)
    findings = [backlogs for _ in range(15) if (backlogs := seen(watch))]
    assert findings[0] == [(group.name, 2)]


def test_a_topic_without_an_alarm_or_that_is_gone_is_not_watched(desk: Desk) -> None:
    group = desk.group()
    desk.produce(*both_shards(4))
    calls: list[str] = []
    watch = watch_of(desk, calls)
    put_topic, name = desk.deps.admin.put_topic, desk.topic.name
    put_topic(name, {"alarm_backlog": None})
    for _ in range(2):
        calls.clear()
        assert seen(watch) == []
    assert calls == []
    put_topic(name, {"alarm_backlog": 1})
    assert seen(watch) == [(group.name, 4)]
    desk.deps.admin.delete_topic(desk.topic)
    watch.run_once()
    calls.clear()
    assert seen(watch) == []
    assert calls == []


def test_shards_and_alarms_that_change_are_seen_at_the_next_look(desk: Desk) -> None:
    group = desk.group()
    watch = watch_of(desk)
    assert seen(watch) == []
    desk.deps.admin.put_topic(desk.topic.name, {"shards": 3, "alarm_backlog": 5})
    topic = desk.deps.catalog.topic(desk.topic.name)
    desk.deps.producer.produce(topic, [make.draft(shard=2)])
    assert watch.run_once().backlogs == [Backlog(topic.name, group.name, 1, 0, 5)]


def test_runs_that_time_ends_come_by_every_watched_topic(empty_stage: Stage) -> None:
    desks = [Desk.at(empty_stage, alarm_backlog=1) for _ in range(9)]
    for each in desks:
        each.group()
        each.produce(*make.drafts(3))
    over: set[str] = set()
    for _ in range(3):
        answers = iter(range(3))
        report = empty_stage.process().watch.run_once(lambda answers=answers: next(answers, None) is not None)  # type: ignore[misc]
        over |= {backlog.topic for backlog in report.over}
        empty_stage.clock.advance(60_000)
    assert over == {each.topic.name for each in desks}


def test_a_watched_topic_that_was_not_noted_is_by_whoever_comes_by_all_of_them(empty_stage: Stage) -> None:
    desk = Desk.at(empty_stage, alarm_backlog=1)
    desk.group()
    desk.produce(*make.drafts(3))
    empty_stage.adapters.marks.unwatch(desk.topic.name)
    assert desk.deps.watch.run_once().over == []
    desk.deps.expirer.run_once()
    assert len(desk.deps.watch.run_once().over) == 1
