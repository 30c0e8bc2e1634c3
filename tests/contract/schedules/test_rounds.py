"""Jobs that go round all topics: every topic has its turn, however the runs end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib import functions
from chalicelib.domain.errors import unavailable
from chalicelib.domain.mark import Bookmark
from chalicelib.domain.times import HOUR_MS
from chalicelib.domain.topic import Topic
from chalicelib.scheduler.walk import HasTime, Stretch, VisitInTurn, Walk
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.desk import Desk
from tests.support.faults import Death
from tests.support.push import Inbox
from tests.support.stages import Stage, embedded_stage

SLOT_MS = 6 * HOUR_MS


def time_for(questions: int) -> HasTime:
    """Time for so many questions: two for each topic, before the visit and after."""
    answers = iter(range(questions))
    return lambda: next(answers, None) is not None


def test_a_place_is_kept_by_who_knows_the_one_before(stage: Stage) -> None:
    rounds, job = stage.adapters.rounds, make.uid("job-")
    assert rounds.bookmark(job) == Bookmark()
    first = rounds.keep(job, Bookmark("a", 5, True))
    assert first == Bookmark("a", 5, True, 1) == rounds.bookmark(job)
    assert rounds.keep(job, Bookmark("b")) is None
    assert rounds.keep(job, replace(first, after=None, is_open=False)) == Bookmark(None, 5, False, 2)
    assert rounds.keep(job, first) is None
    assert stage.another().rounds.bookmark(job) == Bookmark(None, 5, False, 2)


class World:
    """A job over so many topics; every run is a new process."""

    def __init__(self, topics: int) -> None:
        self.stage = embedded_stage()
        self.names = [f"t{n:03}" for n in range(topics)]
        for name in self.names:
            assert self.stage.adapters.control.put_topic(make.topic(name), None)
        self.visits: list[str] = []
        self.poison: dict[str, BaseException] = {}

    def visit(self, topic: Topic, has_time: HasTime, turn: int) -> None:
        self.visits.append(topic.name)
        if topic.name in self.poison:
            raise self.poison[topic.name]

    def run(self, topics: int, visit: VisitInTurn | None = None) -> Stretch | None:
        """One run with time for so many topics; None where it died."""
        return self.run_for(2 * topics, visit or self.visit)

    def run_for(self, questions: int, visit: VisitInTurn) -> Stretch | None:
        """One run that may ask so often whether there is time."""
        a = self.stage.another()
        try:
            return Walk(job="job", control=a.control, rounds=a.rounds, clock=a.clock).run(
                visit, time_for(questions)
            )
        except Death:
            return None


@given(
    topics=st.integers(1, 50),
    budgets=st.lists(st.integers(5, 30), min_size=1, max_size=6),
    number=st.integers(0, 49),
)
def test_between_two_visits_of_a_topic_are_no_more_runs_than_one_round_needs(
    topics: int, budgets: list[int], number: int
) -> None:
    """One topic's visit fails each time."""
    world = World(topics)
    world.poison[f"t{number:03}"] = unavailable("throttled")
    seen_in: dict[str, int] = dict.fromkeys(world.names, -1)
    most = -(-topics // min(budgets)) + 1
    for n in range(3 * most):
        world.visits.clear()
        stretch = world.run(budgets[n % len(budgets)])
        assert stretch is not None
        assert [trouble.topic for trouble in stretch.troubles] == [
            x for x in world.visits if x in world.poison
        ]
        for name in world.visits:
            assert n - seen_in[name] <= most
            seen_in[name] = n
    assert all(n >= 2 * most - 1 for n in seen_in.values())


@given(
    efforts=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    spare=st.integers(0, 12),
)
def test_each_topic_has_all_the_time_it_needs_within_as_many_runs_as_there_are_topics(
    efforts: list[int], spare: int
) -> None:
    """A run has time for any one topic, and perhaps for some more. What ended a run in a topic does not do so again."""
    world = World(len(efforts))
    effort_of = dict(zip(world.names, efforts, strict=True))
    runs_of = dict.fromkeys(world.names, 0)

    def visit(topic: Topic, has_time: HasTime, turn: int) -> None:
        if all(has_time() for _ in range(effort_of[topic.name])):
            runs_of[topic.name] = -1

    for _ in range(3 * len(efforts)):
        world.run_for(max(efforts) + 2 + spare, visit)
        runs_of = {name: runs + 1 for name, runs in runs_of.items()}
        assert max(runs_of.values()) <= len(efforts)


@given(topics=st.integers(2, 60), deadly=st.integers(0, 59), least=st.integers(15, 60))
def test_a_topic_that_kills_its_visitor_keeps_the_others_waiting_for_few_runs(
    topics: int, deadly: int, least: int
) -> None:
    """What was done since the place was last written is done again."""
    world = World(topics)
    name = f"t{deadly % topics:03}"
    world.poison[name] = Death()
    for _ in range(2 + 2 * -(-topics // 15)):
        world.run(least)
    assert set(world.visits) == set(world.names)
    assert world.visits.count(name) <= 2 + len(world.visits) // max(1, topics // 2)


def test_two_runs_at_once_leave_a_place_behind_that_neither_has_not_reached() -> None:
    world = World(12)
    inner: list[Stretch | None] = []

    def visit(topic: Topic, has_time: HasTime, turn: int) -> None:
        world.visit(topic, has_time, turn)
        if topic.name == "t002":
            inner.append(world.run(9))

    world.run(5, visit)
    assert inner != [None]
    world.visits.clear()
    world.run(12)
    assert set(world.visits) == set(world.names)
    assert world.visits[0] == "t010", "the second went on behind the first's place, and came further"


def test_the_age_of_a_round_tells_that_runs_are_too_short() -> None:
    world = World(20)
    ages: list[int] = []
    for _ in range(9):
        stretch = world.run(5)
        assert stretch is not None
        ages.append(stretch.age_ms // HOUR_MS)
        world.stage.clock.advance(SLOT_MS)
    assert ages == [0, 6, 12, 0, 0, 6, 12, 0, 0]


def test_one_topics_work_has_its_bound_in_each_run_and_the_others_their_turn() -> None:
    world = World(3)

    def visit(topic: Topic, has_time: HasTime, turn: int) -> None:
        world.visits.append(topic.name)
        while topic.name == "t001" and has_time():
            world.stage.clock.advance(10_000)

    stretch = world.run(1000, visit)
    assert stretch is not None
    assert world.visits == world.names
    assert not stretch.finished


class Context:
    """Lambda's: time for so many topics."""

    def __init__(self, topics: int) -> None:
        self._has_time = time_for(2 * topics + 1)  # bodies and schedules are looked at first

    def get_remaining_time_in_millis(self) -> int:
        return 60_000 if self._has_time() else 0


@pytest.mark.parametrize("topics_a_run", [1, 50])
def test_what_is_owed_is_buried_and_logs_go_on_though_every_run_is_cold_and_short(
    make_stage: Callable[[], Stage], topics_a_run: int
) -> None:
    """Where time ends a run, it starts itself again."""
    stage = make_stage()
    desks = [Desk.at(stage, retention_days=2) for _ in range(6)]
    groups = [desk.group() for desk in desks]
    for desk in desks:
        desk.produce(make.draft())
    for _ in range(4 * 4):
        stage.clock.advance(SLOT_MS)
        for job in (functions.expire, functions.checkpoint):
            inbox = Inbox()
            inbox.invoke(job.__name__, {})
            while inbox.asked:
                _, event = inbox.asked.popleft()
                job(event, Context(topics_a_run), Deps(replace(stage.another(), invoker=inbox)))
        stage.drop_expired()
    for desk, group in zip(desks, groups, strict=True):
        assert desk.rows() == []
        assert len(stage.adapters.records.dead(desk.topic, group, None, 10)) == 1
        (result,) = Desk(stage, stage.process(), desk.topic).produce(make.draft())
        assert result.offset == 1


def test_a_job_that_never_ends_its_work_starts_itself_again_so_often_and_no_more() -> None:
    stage, inbox = embedded_stage(), Inbox()
    for _ in range(2):
        Desk.at(stage)
    runs = 0
    inbox.invoke("expire", {})
    while inbox.asked and runs < 100:
        _, event = inbox.asked.popleft()
        functions.expire(event, Context(1), Deps(replace(stage.another(), invoker=inbox)))
        runs += 1
    assert runs == 20
