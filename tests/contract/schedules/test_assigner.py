"""The assigner's job: marked topics in each run, and no write where nothing changed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

from chalicelib import functions
from chalicelib.domain.assignment import Staffed
from chalicelib.domain.errors import unavailable
from chalicelib.domain.mark import Mark
from chalicelib.domain.times import HOUR_MS, SECOND_MS
from chalicelib.domain.topic import Consumer, ConsumerKind, ConsumerState, Group, Topic
from chalicelib.scheduler.assigner import Assigner
from chalicelib.services.manage.registry import Contact
from tests.support import factories as make
from tests.support.clock import Inline
from tests.support.desk import Desk
from tests.support.push import PushDesk
from tests.support.stages import Stage
from tests.support.troubled import SlowMinute


class Visits:
    """Notes which groups it is to look after."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def look_after(self, topic: Topic, team: Staffed) -> bool:
        self.seen.append(topic.name)
        return False

    def of_a_run(self, job: Assigner, topics: int = 100) -> str:
        self.seen = []
        answers = iter(range(topics))
        job.run_once(lambda: next(answers, None) is not None)
        return "".join(self.seen)


def staff(stage: Stage, *names: str) -> None:
    """Topics with a group and a consumer, marked."""
    control = stage.adapters.control
    for name in names:
        topic = make.topic(name)
        group = make.group(topic)
        assert control.put_topic(topic, None)
        assert control.put_group(topic, group, None)
        assert control.put_consumer(topic, group, make.consumer(group), None)
        mark(stage, name)


def mark(stage: Stage, name: str) -> None:
    stage.adapters.marks.mark(Mark(name, stage.clock.now_ms()))


def task_of(stage: Stage, visits: Visits) -> Assigner:
    a = stage.another()
    return Assigner(
        control=a.control,
        marks=a.marks,
        rounds=a.rounds,
        look_after=visits.look_after,
        ask=lambda *_: False,
        remove=lambda *_: False,
        clock=a.clock,
        threads=Inline,
    )


def test_marked_topics_are_all_visited_in_every_run_and_no_others(empty_stage: Stage) -> None:
    visits = Visits()
    job = task_of(empty_stage, visits)
    assert visits.of_a_run(job) == ""
    staff(empty_stage, "a", "b", "c")
    assert [sorted(visits.of_a_run(job)) for _ in range(3)] == [["a", "b", "c"]] * 3
    empty_stage.clock.advance(HOUR_MS)
    assert visits.of_a_run(job) == ""
    mark(empty_stage, "b")
    assert visits.of_a_run(job) == "b"


def test_runs_that_are_out_of_time_go_on_where_the_last_stopped_in_any_process(empty_stage: Stage) -> None:
    visits = Visits()
    staff(empty_stage, *"abcde")
    path = "".join(visits.of_a_run(task_of(empty_stage, visits), 2) for _ in range(5))
    assert path in "abcde" * 3
    assert len(path) == 10


def test_a_crashed_consumers_shards_are_given_away_once(empty_stage: Stage) -> None:
    desk = Desk.at(empty_stage, shards=2)
    group, idle = desk.group(), desk.group("idle")
    a, b = desk.consumer(group, "a"), desk.consumer(group, "b")
    assignment_of = desk.stage.adapters.control.assignment
    mark(empty_stage, desk.topic.name)
    job = desk.stage.process().assigner
    report = job.run_once()
    assert (report.stretch.topics, report.groups, report.assigned) == (1, 1, 0)
    desk.stage.clock.advance(25 * SECOND_MS)
    desk.deps.registry.heartbeat(desk.topic, group, b)
    desk.stage.clock.advance(10 * SECOND_MS)
    assert [job.run_once().assigned for _ in range(3)] == [1, 0, 0]
    assignment = assignment_of(desk.topic, group)
    assert assignment is not None
    assert (assignment.epoch, assignment.rank(a.uid), assignment.owners) == (3, None, (b.uid, b.uid))
    assert assignment_of(desk.topic, idle) is None
    assert job.run_once().as_dict() == {
        "topics": 1,
        "groups": 1,
        "assigned": 0,
        "agreed": 0,
        "troubles": 0,
        "round_age_ms": 0,
        "finished": True,
    }


def test_it_is_asked_each_minute_for_an_hour_and_then_each_hour_although_nobody_produces(
    empty_stage: Stage,
) -> None:
    desk = PushDesk.at(empty_stage)
    desk.deps.registry.register(
        desk.topic, desk.group(), "one", Contact(ConsumerKind.URL, "one", ConsumerState.PENDING, "no answer")
    )
    desk.subscribers.agrees = False
    groups: list[int] = []
    for _ in range(180):
        empty_stage.clock.advance(60 * SECOND_MS)
        groups.append(desk.deps.assigner.run_once().groups)
    assert sum(groups[:59]) >= 58, (
        "the second minute may lie between the mark of its registration and the next one"
    )
    assert 2 <= sum(groups[64:]) <= 8, "for some minutes of each hour"
    desk.subscribers.agrees = True
    is_agreed = False
    for _ in range(64):
        empty_stage.clock.advance(60_000)
        is_agreed = is_agreed or bool(desk.deps.assigner.run_once().agreed)
    assert is_agreed


def test_who_has_not_agreed_is_asked_though_the_visits_have_no_time_for_all_topics(
    empty_stage: Stage,
) -> None:
    staff(empty_stage, *(f"busy{n:02}" for n in range(30)))
    desk = PushDesk.at(empty_stage, shards=1)
    contact = Contact(ConsumerKind.URL, "one", ConsumerState.PENDING, "no answer")
    desk.deps.registry.register(desk.topic, desk.group(), "one", contact)
    agreed = visited = 0
    for _ in range(8):
        for mark_of in (*(f"busy{n:02}" for n in range(30)), desk.topic.name):
            mark(empty_stage, mark_of)
        report = functions.assign(SlowMinute(4_000), desk.deps)
        assert not report["finished"]
        visited += report["topics"]
        agreed += report["agreed"]
        empty_stage.clock.advance(60 * SECOND_MS)
    assert agreed == 1
    assert visited >= 31, "and every topic has its turn"


def test_who_hangs_holds_up_nobody(empty_stage: Stage) -> None:
    topics = [f"t{n}" for n in range(8)]
    staff(empty_stage, *topics)
    control = empty_stage.adapters.control
    for name in topics:
        topic = control.topic(name)
        assert topic
        [team] = control.staffed_groups(topic)
        [consumer] = team.consumers
        hangs = replace(consumer, kind=ConsumerKind.URL, state=ConsumerState.PENDING, target=name)
        assert control.put_consumer(topic, team.group, hangs, consumer)
    together = Barrier(len(topics))  # all are asked before one goes on

    def ask(topic: Topic, group: Group, consumer: Consumer) -> bool:
        together.wait(30)
        if topic.name == "t3":
            raise unavailable()
        return topic.name != "t4"

    a = empty_stage.another()
    job = Assigner(
        control=a.control,
        marks=a.marks,
        rounds=a.rounds,
        look_after=Visits().look_after,
        ask=ask,
        remove=lambda *_: False,
        clock=a.clock,
        threads=lambda: ThreadPoolExecutor(8),
    )
    report = job.run_once()
    assert report.agreed == 6
    assert [trouble.topic for trouble in report.stretch.troubles] == ["t3"]


def test_consumers_that_have_expired_are_removed(stage: Stage) -> None:
    desk = Desk.at(stage)
    group, control = desk.group(), stage.adapters.control
    desk.deps.registry.register(desk.topic, group, "c", Contact(expires_after_seconds=60))
    for seconds, left in ((60, 1), (1, 0)):
        stage.clock.advance(seconds * SECOND_MS)
        mark(stage, desk.topic.name)
        desk.deps.assigner.run_once()
        assert len(control.consumers(desk.topic, group)) == left
