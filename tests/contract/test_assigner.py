"""The assigner's job: a few topics a run, round and round, and no write where nothing changed."""

from __future__ import annotations

from chalicelib.domain.topic import Topic
from chalicelib.ports import Control, Staffed
from chalicelib.scheduler.assigner import Assigner, Report
from chalicelib.services.setup import Contact
from tests.support import factories as make
from tests.support.clock import SECOND_MS
from tests.support.desk import Desk
from tests.support.push import PushDesk
from tests.support.stages import Stage


class Visits:
    """Notes whom it is to look after."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def look_after(self, topic: Topic, staffed: Staffed) -> bool:
        self.seen.append(topic.name)
        return False

    def of_a_run(self, job: Assigner) -> str:
        self.seen = []
        job.run_once()
        return "".join(self.seen)


def staff(control: Control, *names: str) -> None:
    for name in names:
        topic = make.topic(name)
        group = make.group(topic)
        assert control.put_topic(topic, None)
        assert control.put_group(topic, group, None)
        assert control.put_consumer(topic, group, make.consumer(group), None)


def test_few_topics_are_all_visited_in_every_run(empty_stage: Stage) -> None:
    control, visits = empty_stage.adapters.control, Visits()
    job = Assigner(control, visits.look_after, lambda *_: False)
    assert visits.of_a_run(job) == ""
    staff(control, "a")
    assert [sorted(visits.of_a_run(job)) for _ in range(3)] == [["a"]] * 3
    staff(control, "b")
    assert [sorted(visits.of_a_run(job)) for _ in range(3)] == [["a", "b"]] * 3


def test_many_topics_take_turns(empty_stage: Stage) -> None:
    control, visits = empty_stage.adapters.control, Visits()
    staff(control, *"abcdefghij")
    job = Assigner(control, visits.look_after, lambda *_: False)
    assert [visits.of_a_run(job) for _ in range(6)] == ["ab", "cd", "ef", "gh", "ij", "ab"]
    assert visits.of_a_run(Assigner(control, visits.look_after, lambda *_: False)) == "ab"


def test_a_run_that_is_out_of_time_goes_on_where_it_stopped(empty_stage: Stage) -> None:
    control, visits = empty_stage.adapters.control, Visits()
    staff(control, *"abcde")
    job = Assigner(control, visits.look_after, lambda *_: False)
    left = iter([True, False])
    assert job.run_once(lambda: next(left)) == Report(topics=1, groups=1, finished=False)
    assert visits.of_a_run(job) == "bc"


def test_a_crashed_consumers_shards_are_given_away_once(empty_stage: Stage) -> None:
    desk = Desk.at(empty_stage, shards=2)
    group, idle = desk.group(), desk.group("idle")
    a, b = desk.consumer(group, "a"), desk.consumer(group, "b")
    stored = desk.stage.adapters.control.assignment
    job = desk.stage.process().assigner
    assert job.run_once() == Report(topics=1, groups=1, assigned=0)
    desk.stage.clock.advance(25 * SECOND_MS)
    desk.deps.admin.heartbeat(desk.topic, group, b)
    desk.stage.clock.advance(10 * SECOND_MS)
    assert [job.run_once().assigned for _ in range(3)] == [1, 0, 0]
    held = stored(desk.topic, group)
    assert held is not None
    assert (held.epoch, held.rank(a.uid), held.owners) == (3, None, (b.uid, b.uid))
    assert stored(desk.topic, idle) is None
    assert job.run_once().as_dict() == {
        "topics": 1,
        "groups": 1,
        "assigned": 0,
        "agreed": 0,
        "finished": True,
    }


def test_a_consumer_whose_owner_did_not_agree_at_once_is_asked_again(empty_stage: Stage) -> None:
    desk = PushDesk.at(empty_stage)
    group = desk.group()
    pending = Contact("url", "one", "PENDING", "nobody answered")
    desk.deps.admin.register(desk.topic, group, "one", pending)
    desk.produce(make.draft())
    desk.push()
    assert not desk.subscribers.calls
    desk.subscribers.agrees = False
    assert desk.deps.assigner.run_once().agreed == 0
    desk.subscribers.agrees = True
    assert desk.deps.assigner.run_once().agreed == 1
    desk.run()
    assert len(desk.subscribers.calls) == 1
