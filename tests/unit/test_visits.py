"""Jobs on schedule, each rule by itself: turns, bookmarks, what a look finds, and what is written down in time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from chalicelib.domain.mark import Bookmark, Mark
from chalicelib.domain.times import MINUTE_MS
from chalicelib.domain.topic import ConsumerState
from chalicelib.scheduler.walk import HasTime, RoundRobin, Stretch, VisitInTurn, Walk
from tests.support import factories as make
from tests.support.clock import Inline
from tests.support.push import PushDesk
from tests.support.stages import Stage, embedded_stage


@pytest.fixture
def stage() -> Stage:
    return embedded_stage()


def time_for(questions: int) -> HasTime:
    answers = iter(range(questions))
    return lambda: next(answers, None) is not None


def always() -> bool:
    return True


# Walks and turns.


def walk(stage: Stage, visit: VisitInTurn, has_time: HasTime = always) -> Stretch:
    a = stage.adapters
    return Walk(job="job", control=a.control, rounds=a.rounds, clock=stage.clock).run(visit, has_time)


def test_topics_are_looked_at_one_first_and_then_more_together(stage: Stage) -> None:
    round_robin = RoundRobin("job", stage.adapters.rounds, stage.clock)
    names = [f"t{n:02}" for n in range(20)]
    visits: list[str] = []

    def look(name: str) -> Callable[[], bool]:
        def visit() -> bool:
            visits.append(name)
            return True

        return visit

    with Inline() as threads:
        for batches, topics in ((1, 1), (2, 3), (3, 7), (4, 15), (5, 20)):
            visits.clear()
            stretch = round_robin.run_together(names, Bookmark(), look, time_for(batches), threads)
            assert (len(visits), stretch.finished) == (topics, topics == 20)


@pytest.mark.parametrize(
    ("after", "whole", "last"),
    [
        (None, "", "a"),  # the first one took all the time: it is the others' turn
        (None, "a", "a"),
        (None, "abd", "b"),  # what was looked at beside it is looked at again
        ("b", "cda", "a"),
        ("c", "d", "d"),
    ],
)
def test_the_next_run_begins_with_the_first_topic_that_there_was_too_little_time_for(
    stage: Stage, after: str | None, whole: str, last: str
) -> None:
    stretch = RoundRobin("job", stage.adapters.rounds, stage.clock).run_together(
        "abcd", Bookmark(after), lambda name: lambda: name in whole, always, Inline()
    )
    assert (stretch.last, stretch.finished) == (last, False)


# What the sweeper finds.


@pytest.mark.parametrize("why", ["pulled", "paused", "disabled", "called"])
def test_only_what_somebody_is_called_for_can_be_forgotten(stage: Stage, why: str) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    if why == "pulled":
        desk.consumer(group, "puller")
    else:
        consumer = desk.subscriber(group, "hook")
    if why == "paused":
        desk.deps.admin.pause(desk.topic, group.name, True)
    if why == "disabled":
        off = replace(consumer, state=ConsumerState.DISABLED)
        (now,) = stage.adapters.control.consumers(desk.topic, group)
        assert stage.adapters.control.put_consumer(desk.topic, group, off, now)
    desk.produce(make.draft())
    findings = desk.deps.sweeper.examine(desk.topic)
    assert findings.forgotten == ([str(desk.topic.shard_key(0))] if why == "called" else [])


# What is written down before rows go.


# What the sweep may let go of.


def test_who_comes_by_all_topics_marks_what_was_forgotten_for_the_next_run(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    desk.subscriber(desk.group(), "hook")
    desk.produce(make.draft())
    stage.clock.advance(60 * MINUTE_MS)
    desk.deps.sweeper.restore_mark(desk.topic, always)
    assert Mark(desk.topic.name, stage.clock.now_ms()) in list(stage.adapters.marks.since(0))
