"""What each kind of group may have waiting is found by the sweep, when its wake-up was lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib import functions
from chalicelib.domain.errors import Unavailable
from chalicelib.domain.mark import WINDOW_MS, Mark, complete_until_ms, window_of
from chalicelib.domain.times import HOUR_MS, MINUTE_MS
from chalicelib.domain.topic import ConsumerKind, Group
from chalicelib.services.consume.settle import Nack
from chalicelib.services.manage.registry import Contact
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.push import Inbox, PushDesk
from tests.support.stages import Stage, embedded_stage
from tests.support.troubled import SlowMinute, Troubled


def pushed(stage: Stage, **settings: Any) -> tuple[PushDesk, Group]:
    desk = PushDesk.at(stage, **settings)
    group = desk.group(mode=settings.get("mode", "queue"))
    desk.subscriber(group, "one")
    desk.topic = desk.deps.catalog.topic(desk.topic.name)
    return desk, group


def minutes_to_find(desk: PushDesk, most: int = 3) -> int:
    """Every wake-up is lost; only sweeps of new processes come by."""
    for minute in range(1, most + 1):
        desk.inbox.asked.clear()
        desk.stage.clock.advance(MINUTE_MS)
        deps = Deps(replace(desk.stage.another(), invoker=desk.inbox))
        deps.sweeper.run_once()
        if any(event.get("topic") == desk.topic.name for _, event in desk.inbox.asked):
            return minute
    raise AssertionError("not found")


def rest(desk: PushDesk, minutes: int = 20) -> None:
    for _ in range(minutes):
        desk.stage.clock.advance(MINUTE_MS)
        desk.deps.sweeper.run_once()
    desk.inbox.asked.clear()


def test_what_came_back_from_a_deliverer_that_died_is_found_long_after_it_was_produced(
    empty_stage: Stage,
) -> None:
    desk, group = pushed(empty_stage)
    desk.produce(make.draft())
    for _ in range(5):  # for a quarter of an hour a run is at work, and dies
        desk.receive(group, lease=180)
        for _ in range(3):
            desk.inbox.asked.clear()
            desk.stage.clock.advance(MINUTE_MS)
            desk.deps.sweeper.run_once()
    assert minutes_to_find(desk, 5) <= 4


def test_a_retry_whose_wake_up_was_lost_is_found_in_its_lane(empty_stage: Stage) -> None:
    desk, group = pushed(empty_stage)
    desk.produce(make.draft())
    desk.nack(group, desk.receive(group), Nack(delay_ms=HOUR_MS))
    rest(desk)
    desk.stage.clock.advance(HOUR_MS)
    desk.deps.mover.run_once()
    assert minutes_to_find(desk) == 1


def test_what_waits_in_a_serial_group_is_found_when_it_is_due(empty_stage: Stage) -> None:
    desk, group = pushed(empty_stage, mode="serial")
    desk.produce(make.draft(ordering_key="k"))
    desk.nack(group, desk.receive(group), Nack(delay_ms=3 * HOUR_MS))
    rest(desk, 170)
    assert minutes_to_find(desk, 15) >= 10


def test_what_waits_is_found_when_it_is_due_though_the_mark_stands_at_a_later_lease_s_end() -> None:
    desk, group = pushed(embedded_stage(), mode="serial")
    desk.produce(make.draft(ordering_key="l"))
    assert len(desk.receive(group, lease=12 * 3600)) == 1
    rest(desk)
    desk.produce(make.draft(ordering_key="k"))
    desk.nack(group, desk.receive(group), Nack(delay_ms=HOUR_MS))
    rest(desk, 50)
    assert minutes_to_find(desk, 15) >= 10


@pytest.mark.parametrize("what", ["a group's cursors", "a shard"])
def test_i10_what_the_store_refuses_hides_nothing_else_of_its_topic(what: str) -> None:
    """Of two groups, and two shards, one cannot be read for minutes; the wake-ups of all were lost."""
    desk, refused = pushed(embedded_stage(), shards=2)
    other = desk.group("other")
    desk.subscriber(other, "two")
    away = str(desk.topic.shard_key(0))
    for _ in range(5):
        desk.produce(make.draft(shard=0), make.draft(shard=1))
        desk.stage.clock.advance(MINUTE_MS)
        adapters, inbox = desk.stage.another(), Inbox()
        cursors = Troubled(
            adapters.cursors, lambda name, *call: name == "of_owner" and call[0] == refused.uid
        )
        log = Troubled(adapters.log, lambda name, *call: name == "read_back" and str(call[0]) == away)
        port: dict[str, Any] = {"cursors": cursors} if what == "a group's cursors" else {"log": log}
        report = Deps(replace(adapters, invoker=inbox, **port)).sweeper.run_once()
        found = {event["group"] for _, event in inbox.asked}
        assert "other" in found
        assert len(report.stretch.troubles) == 1
    assert minutes_to_find(desk, 1) == 1, "and its mark stays"


def test_a_broadcast_at_rest_is_not_looked_at() -> None:
    desk, _ = pushed(embedded_stage(), mode="broadcast")
    desk.produce(make.draft())
    desk.push()
    assert len(desk.subscribers.calls) == 1
    rest(desk)
    desk.stage.clock.advance(MINUTE_MS)
    report = desk.deps.sweeper.run_once()
    assert (report.looks, report.woken) == (0, 0)


def test_i10_what_comes_beside_a_message_that_is_pulled_for_hours_is_found(empty_stage: Stage) -> None:
    """Only the lease of a run shows that the shard is served."""
    desk, group = pushed(empty_stage)
    desk.produce(make.draft())
    assert len(desk.receive(group, lease=12 * 3600)) == 1
    rest(desk)
    desk.produce(make.draft())
    assert minutes_to_find(desk) == 1


@pytest.mark.parametrize("how", ["extend", "nack"])
def test_i10_what_was_pulled_for_hours_is_found_when_it_is_let_go_before(
    empty_stage: Stage, how: str
) -> None:
    """Its mark stands at the lease's first end. In a serial group it waits in the cursor."""
    desk, group = pushed(empty_stage, mode="queue" if how == "extend" else "serial")
    desk.produce(make.draft(ordering_key="k"))
    pulled = desk.receive(group, lease=12 * 3600)
    rest(desk)
    if how == "extend":
        assert desk.extend(group, pulled, 120) == [None]
    else:
        desk.nack(group, pulled, Nack(delay_ms=2 * MINUTE_MS))
    assert minutes_to_find(desk, 6) >= 2


@pytest.mark.parametrize("how", ["resume", "seek", "register"])
def test_what_lay_there_is_found_when_a_group_may_go_on(empty_stage: Stage, how: str) -> None:
    desk, group = pushed(empty_stage)
    admin = desk.deps.admin
    if how == "resume":
        admin.pause(desk.topic, group.name, True)
        desk.produce(make.draft())
    else:
        desk.produce(make.draft())
        desk.drain(group)
    if how == "register":
        group = desk.group("late")
    rest(desk)
    if how == "resume":
        desk.deps.waker.wake_after_resumption(desk.topic, admin.pause(desk.topic, group.name, False))
    elif how == "seek":
        desk.seek(group, "earliest")
        desk.deps.waker.wake_group(desk.topic, group)
    else:
        desk.deps.registry.register(desk.topic, group, "one", Contact(ConsumerKind.URL, "one"))
    assert minutes_to_find(desk) == 1


def test_runs_that_have_no_time_for_a_whole_topic_come_by_all_its_consumers(empty_stage: Stage) -> None:
    desk = PushDesk.at(empty_stage, shards=1, mode="broadcast")
    group = desk.group(mode="broadcast")
    for n in range(12):
        desk.subscriber(group, f"c{n:02}")
    desk.topic = desk.deps.catalog.topic(desk.topic.name)
    desk.produce(make.draft())
    woken: set[str] = set()
    for _ in range(8):
        empty_stage.clock.advance(MINUTE_MS)
        inbox = Inbox()
        questions = iter(range(4))
        sweeper = Deps(replace(empty_stage.another(), invoker=inbox)).sweeper
        sweeper.run_once(lambda questions=questions: next(questions, None) is not None)  # type: ignore[misc]
        woken |= {event["consumer_uid"] for function, event in inbox.asked if function == "deliver"}
    assert len(woken) == 12


def test_backlogs_are_told_and_lost_wake_ups_found_though_neither_has_time_enough(empty_stage: Stage) -> None:
    for _ in range(12):
        desk, _ = pushed(empty_stage, shards=1, alarm_backlog=1)
        desk.produce(*make.drafts(3))
    groups_over, topics = 0, 0
    for _ in range(8):
        empty_stage.clock.advance(MINUTE_MS)
        report = functions.sweep(SlowMinute(4_000), Deps(replace(empty_stage.another(), invoker=Inbox())))
        groups_over += report["over"]
        topics += report["topics"]
        assert report["over"] >= 1
        assert report["topics"] >= 1
    assert groups_over >= 12
    assert topics >= 12


def test_meters_are_read_though_the_sweep_has_no_time_for_all_topics(empty_stage: Stage) -> None:
    for _ in range(60):
        desk, _ = pushed(empty_stage, shards=1)
        desk.produce(*make.drafts(3))
        empty_stage.adapters.marks.note_moving(desk.topic.name)
    empty_stage.clock.advance(MINUTE_MS)
    for _ in range(3):
        report = functions.sweep(SlowMinute(1_000), Deps(replace(empty_stage.another(), invoker=Inbox())))
        assert not report["finished"]
        assert report["read"] >= 1


@pytest.mark.parametrize(
    ("port", "refuses"),
    [
        ("marks", lambda name, *call: name == "each_minute"),
        ("rounds", lambda name, *call: name == "bookmark" and call[0] == "watch"),
        ("rounds", lambda name, *call: name == "keep" and call[0] == "watch"),
    ],
)
def test_i10_lost_wake_ups_are_found_though_the_watch_is_refused_its_list(
    port: str, refuses: Callable[..., bool]
) -> None:
    """There are more topics than a run has time for."""
    stage = embedded_stage()
    for _ in range(12):
        desk, _ = pushed(stage, shards=1, alarm_backlog=1)
        desk.produce(*make.drafts(3))
    stage.clock.advance(MINUTE_MS)
    adapters, inbox = stage.another(), Inbox()
    refused: dict[str, Any] = {port: Troubled(getattr(adapters, port), refuses)}
    report = functions.sweep(SlowMinute(4_000), Deps(replace(adapters, invoker=inbox, **refused)))
    assert {function for function, _ in inbox.asked} == {"deliver"}
    assert report["troubles"] == 1


def test_backlogs_are_told_though_the_sweep_is_refused_its_list(caplog: pytest.LogCaptureFixture) -> None:
    desk, _ = pushed(embedded_stage(), shards=1, alarm_backlog=1)
    desk.produce(*make.drafts(3))
    adapters = desk.stage.another()
    marks: Any = Troubled(adapters.marks, lambda name, *call: name == "since")
    with pytest.raises(Unavailable):
        functions.sweep(SlowMinute(4_000), Deps(replace(adapters, invoker=Inbox(), marks=marks)))
    assert "backlog over alarm" in caplog.messages


def test_marks_come_by_time_from_one_on(stage: Stage) -> None:
    marks, (one, other), start_ms = stage.adapters.marks, (make.uid("a-"), make.uid("b#")), 9_000_000_000_000
    for topic, at_ms in ((one, 5), (other, 3), (one, 9), (one, 5)):
        marks.mark(Mark(topic, start_ms + at_ms))
    found_marks = [(mark.topic, mark.at_ms - start_ms) for mark in marks.since(start_ms + 4)]
    assert found_marks == [(one, 5), (one, 9)]
    assert (other, 3) in [(mark.topic, mark.at_ms - start_ms) for mark in marks.since(start_ms)]


def test_watched_topics_are_listed_with_their_versions(stage: Stage) -> None:
    marks, name = stage.adapters.marks, make.uid("w-")
    marks.watch(name, 1)
    marks.watch(name, 2)
    assert marks.each_minute().watched[name] == 2
    marks.unwatch(name)
    marks.unwatch(name)
    assert name not in marks.each_minute().watched


@given(
    name=st.text(min_size=1, max_size=9),
    now_ms=st.integers(10**12, 10**13),
    later_ms=st.integers(0, WINDOW_MS),
)
def test_a_window_is_over_only_after_all_that_was_put_in_under_its_mark(
    name: str, now_ms: int, later_ms: int
) -> None:
    begin_ms = window_of(name, now_ms)
    assert begin_ms <= now_ms < begin_ms + WINDOW_MS
    assert window_of(name, begin_ms) == begin_ms
    if window_of(name, now_ms + later_ms) == begin_ms:
        assert begin_ms > complete_until_ms(now_ms + later_ms)
