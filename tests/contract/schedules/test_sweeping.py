"""A wake-up that was lost is found within two minutes, in a stage with any number of topics; an idle stage is not
written to."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chalicelib.domain.assignment import Staffed
from chalicelib.domain.cursor import Cursor, Disposition
from chalicelib.domain.errors import Unavailable, unavailable
from chalicelib.domain.segment import ShardKey
from chalicelib.domain.times import HOUR_MS, MINUTE_MS
from chalicelib.domain.topic import Topic
from chalicelib.scheduler.sweeper import SweepReport
from chalicelib.services.consume.decision import SettleDecision
from chalicelib.services.core.wake import task_of
from chalicelib.store.control import Control
from chalicelib.store.layout import FRAGMENTS
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.desk import overtaken
from tests.support.embedded import engine_of
from tests.support.faults import Death
from tests.support.push import Inbox, PushDesk
from tests.support.stages import Stage, embedded_stage
from tests.support.troubled import Troubled

DONE = SettleDecision(Disposition.SUCCESS)


class Ill:
    """store.Control on which the look at some topics fails."""

    def __init__(self, control: Control, ills: dict[str, BaseException]) -> None:
        self._control, self._ills = control, ills

    def __getattr__(self, name: str) -> Any:
        return getattr(self._control, name)

    def staffed_groups(self, topic: Topic) -> list[Staffed]:
        if topic.name in self._ills:
            raise self._ills[topic.name]
        return self._control.staffed_groups(topic)


class World:
    """So many topics, each with a subscriber, whose wake-ups are all lost. Each group that the sweep wakes is
    served."""

    def __init__(self, topics: int) -> None:
        self.stage = embedded_stage()
        self.ills: dict[str, BaseException] = {}
        self.woken: Counter[str] = Counter()
        self.names = [f"t{n:04}" for n in range(topics)]
        for name in self.names:
            self._set_up(make.topic(name))
        self.producers = [self.process() for _ in range(2)]

    def _set_up(self, topic: Topic) -> None:
        control, group = self.stage.adapters.control, make.group(topic, "g", begin="earliest")
        assert control.put_topic(topic, None)
        assert control.put_group(topic, group, None)
        assert control.put_consumer(topic, group, make.consumer(group, kind="url", target="one"), None)

    def process(self) -> Deps:
        control = cast(Control, Ill(self.stage.adapters.control, self.ills))
        return Deps(replace(self.stage.another(), control=control, invoker=Inbox()))

    def produce(self, name: str, by: int = 0) -> None:
        deps = self.producers[by]
        (place,) = deps.producer.produce(deps.catalog.topic(name), [make.draft()])
        assert hasattr(place, "offset")

    def sweep(self, topics: int = 10**6, deps: Deps | None = None) -> SweepReport | None:
        """One run, of a new process, with time for so many topics; None where it died. What it wakes is served."""
        deps = deps or self.process()
        answers = iter(range(2 * topics))  # before each topic, and before its group
        try:
            return deps.sweeper.run_once(lambda: next(answers, None) is not None)
        except Death:
            return None
        finally:
            tasks = cast(Inbox, deps.adapters.invoker).asked
            while tasks:
                job = task_of(tasks.popleft()[1])
                self.woken[job.topic] += 1
                self._serve(job.topic)

    def _serve(self, name: str) -> None:
        deps = Deps(self.stage.another())
        topic = deps.catalog.topic(name)
        group = deps.catalog.group(topic, "g")
        while messages := deps.receiver.receive(topic, group, None, 100, 0, 30):
            deps.settler.settle(topic, group, [d.receipt for d in messages], lambda *_: DONE)

    def minute(self) -> None:
        self.stage.clock.advance(MINUTE_MS)

    def writes(self) -> int:
        """How many rows were changed so far."""
        return engine_of(self.stage.adapters)._storage._writer.total_changes

    def is_forgotten(self, name: str) -> bool:
        """Does the topic have a message without a wake-up?"""
        a = self.stage.adapters
        topic = a.control.topic(name)
        assert topic
        (team,) = a.control.staffed_groups(topic)
        cursors = a.cursors.of_owner(team.group.uid)
        keys = (topic.shard_key(shard) for shard in topic.shard_numbers)
        return any(a.log.tail(key).offset >= cursors.get(str(key), Cursor()).next for key in keys)


@pytest.mark.parametrize("topics", [10, 100, 1000])
def test_at_rest_nothing_is_written_and_a_lost_wake_up_is_found_at_the_next_run(topics: int) -> None:
    world = World(topics)
    before = world.writes()
    for _ in range(10):
        world.minute()
        report = world.sweep()
        assert report is not None
        assert (report.stretch.topics, report.looks, report.stretch.finished) == (0, 0, True)
    assert world.writes() == before
    for victim in (world.names[0], world.names[topics // 2], world.names[-1]):
        world.produce(victim)
        world.minute()
        world.sweep()
        assert world.woken[victim] == 1
        assert not world.is_forgotten(victim)
        for _ in range(5):  # and is let go
            world.minute()
            report = world.sweep()
        assert report is not None
        assert report.stretch.topics == 0
    writes = world.writes()
    world.minute()
    world.sweep()
    assert world.writes() == writes


def test_a_busy_process_marks_a_topic_once_in_two_minutes(stage: Stage) -> None:
    world = World(1)
    marks = world.stage.adapters.marks
    for _ in range(600):
        world.produce("t0000")
        world.stage.clock.advance(1_000)
    assert len(list(marks.since(0))) in (5, 6)


def test_i10_after_a_clock_was_an_hour_ahead_a_lost_wake_up_is_found_as_always() -> None:
    world = World(2)
    world.stage.clock.advance(HOUR_MS)
    world.produce(world.names[0])
    for _ in range(6):  # until its mark is let go
        world.minute()
        world.sweep()
    world.stage.clock.advance(-HOUR_MS)
    for name in world.names:
        world.produce(name, by=1)
        world.minute()
        world.sweep()
        assert not world.is_forgotten(name)
    for _ in range(5):
        world.minute()
        world.sweep()
    report = world.sweep()
    assert report is not None
    assert report.stretch.topics == 0, "and what was marked is let go"


@pytest.mark.parametrize("minutes", [1, 7])
def test_a_mark_that_cannot_be_stored_for_a_while_is_made_up_for(minutes: int) -> None:
    """A topic whose wake-ups are all lost is found within two minutes of the time when marks can be stored."""
    world = World(3)
    away = [True]
    adapters = world.stage.another()
    marks: Any = Troubled(adapters.marks, lambda name, *_: name == "mark" and away[0])
    deps = Deps(replace(adapters, marks=marks, invoker=Inbox()))
    for _ in range(20):
        deps.producer.produce(deps.catalog.topic(world.names[1]), [make.draft()])
        world.stage.clock.advance(3_000)
    timers = sum(len(deps.adapters.timers.first_due(f, 1 << 50, 100).timers) for f in range(FRAGMENTS))
    assert timers == 2, "one in half a minute"
    for minute in range(minutes + 2):
        away[0] = minute + 1 < minutes
        deps.mover.run_once()
        world.minute()
        world.sweep(deps=None)
    assert not world.is_forgotten(world.names[1])


def test_i10_what_cannot_be_marked_in_any_way_is_not_accepted() -> None:
    world = World(1)
    adapters = world.stage.another()
    marks: Any = Troubled(adapters.marks, lambda name, *_: name == "mark")
    timers: Any = Troubled(adapters.timers, lambda name, *_: name == "store")
    deps = Deps(replace(adapters, marks=marks, timers=timers, invoker=Inbox()))
    topic = deps.catalog.topic(world.names[0])
    (outcome,) = deps.producer.produce(topic, [make.draft()])
    assert isinstance(outcome, Unavailable)
    assert all(adapters.log.tail(topic.shard_key(shard)).offset == -1 for shard in topic.shard_numbers)


def test_i10_what_was_put_in_long_after_its_mark_is_found(stage: Stage) -> None:
    """The writer stands still between mark and append, until the mark is let go."""
    world = World(1)

    def five_minutes(_: ShardKey) -> None:
        for _minute in range(5):
            world.minute()
            world.sweep()

    slow = Deps(
        replace(world.stage.another(), log=overtaken(world.stage.adapters.log, five_minutes), invoker=Inbox())
    )
    slow.producer.produce(slow.catalog.topic(world.names[0]), [make.draft()])
    assert world.is_forgotten(world.names[0])
    world.minute()
    world.sweep()
    assert not world.is_forgotten(world.names[0])


def test_a_topic_that_nobody_was_ever_called_for_is_not_marked(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.consumer(group, "pulls")
    desk.deps.producer.produce(desk.deps.catalog.topic(desk.topic.name), make.drafts(3))
    assert desk.topic.name not in marked(stage)
    desk.subscriber(group, "one")
    assert desk.topic.name in marked(stage)


def marked(stage: Stage) -> set[str]:
    return {mark.topic for mark in stage.adapters.marks.since(0)}


@settings(max_examples=20)
@example(topics=4, budget=1, ill=0, minutes=[("run", []), ("run", [0, 1, 2, 3])])
@given(
    topics=st.integers(1, 60),
    budget=st.integers(1, 25),
    ill=st.integers(0, 59),
    minutes=st.lists(
        st.tuples(
            st.sampled_from(["run", "run", "twice", "missing"]), st.lists(st.integers(0, 59), max_size=4)
        ),
        max_size=25,
    ),
)
def test_whatever_becomes_of_runs_nothing_stays_forgotten_for_more_than_a_round(
    topics: int, budget: int, ill: int, minutes: list[tuple[str, list[int]]]
) -> None:
    """Runs are cold and short, come twice or not at all, and one topic cannot be looked at."""
    world = World(topics)
    sick = f"t{ill % topics:04}"
    world.ills[sick] = unavailable("throttled")
    runs_since: dict[str, int] = {}
    most = -(-topics // budget) + 1
    calm: list[tuple[str, list[int]]] = [("run", [])] * (most + 1)
    for n, (how, numbers) in enumerate(minutes + calm):
        for number in numbers:
            name = f"t{number % topics:04}"
            world.produce(name, n % 2)
            runs_since.setdefault(name, 0)
        world.minute()
        for _ in range({"run": 1, "twice": 2, "missing": 0}[how]):
            report = world.sweep(budget)
            assert report is not None
            assert [x.topic for x in report.stretch.troubles] in ([], [sick])
            runs_since = {name: runs + 1 for name, runs in runs_since.items() if world.is_forgotten(name)}
            assert all(runs <= most for name, runs in runs_since.items() if name != sick)
    world.ills.clear()
    for _ in range(most):
        world.minute()
        world.sweep(budget)
    assert not any(world.is_forgotten(name) for name in world.names)


def test_a_topic_that_kills_the_sweep_keeps_others_waiting_but_not_for_ever() -> None:
    world = World(8)
    world.ills["t0003"] = Death()
    for name in world.names:
        world.produce(name)
    for _ in range(9):
        world.minute()
        world.sweep()
    assert set(world.woken) == set(world.names) - {"t0003"}


def test_a_sweep_that_was_off_for_days_finds_what_was_marked_meanwhile() -> None:
    world = World(30)
    for hour in range(50):
        world.produce(world.names[hour % 30])
        world.stage.clock.advance(HOUR_MS)
    world.sweep()
    assert set(world.woken) == set(world.names)
    for _ in range(8):
        world.minute()
        report = world.sweep()
    assert report is not None
    assert report.stretch.topics == 0
