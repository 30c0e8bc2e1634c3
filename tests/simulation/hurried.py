"""Stages whose scheduled jobs never have time for all topics: each topic has its turn, and all of it (I9, I10).

Only the sweep wakes groups, and only the expirer keeps rows that the archive lacks. A run of either has time for any
one topic, and mostly for some more; all runs have the same time, and a topic costs the same each time, so that runs may
end at the same places again and again. Some topics cannot be looked at; and in some stages no run has time enough for
one topic. The number of runs is judged: nothing may wait for more of them than there are topics, and one.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

from chalicelib.domain.assignment import Staffed
from chalicelib.domain.errors import unavailable
from chalicelib.domain.segment import ShardKey
from chalicelib.domain.times import DAY_MS, HOUR_MS, MINUTE_MS
from chalicelib.domain.topic import ConsumerKind, Topic
from chalicelib.services.core.wake import task_of
from chalicelib.services.manage.registry import Contact
from chalicelib.services.produce.appender import ProduceResult
from chalicelib.store.control import Control
from chalicelib.wiring import Deps
from tests.simulation.virtual import Scheduler
from tests.support.clock import Inline
from tests.support.flows import draft, label_of
from tests.support.push import Inbox, Subscribers
from tests.support.stages import Stage, embedded_stage

_PULLED = "pulled"  # a group of each topic without push consumers
_HUGE = 20  # consumers: more than a run has time for
_ROUNDS = 3  # runs of the sweep while producers send, by the number of topics


class _Ill:
    """store.Control on which the look at some topics fails."""

    def __init__(self, control: Control, names: set[str]) -> None:
        self._control, self._names = control, names

    def __getattr__(self, name: str) -> Any:
        return getattr(self._control, name)

    def staffed_groups(self, topic: Topic) -> list[Staffed]:
        if topic.name in self._names:
            raise unavailable("throttled")
        return self._control.staffed_groups(topic)


@dataclass
class Owed:
    """A message that a subscriber waits for, and in how many runs it was not found yet."""

    label: str
    target: str
    runs: int = 0


@dataclass
class Hurry:
    """One seed's stage; `complaints` is what was wrong, `path` what happened."""

    seed: int
    complaints: list[str] = field(default_factory=list)
    path: list[str] = field(default_factory=list)
    injected: Counter[str] = field(default_factory=Counter)
    topics: list[Topic] = field(default_factory=list)
    ill: set[str] = field(default_factory=set)
    stage: Stage = field(default_factory=embedded_stage)
    inbox: Inbox = field(default_factory=Inbox)
    targets: dict[str, list[str]] = field(default_factory=dict)  # by topic, of groups that can be read
    owed: list[Owed] = field(default_factory=list)
    places: list[tuple[ShardKey, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        Scheduler()  # locks are those of its tasks, here as well
        self.random = random.Random(f"hurried {self.seed}")
        self.subscribers = Subscribers(self.stage.clock)

    def process(self) -> Deps:
        a = self.stage.another()
        control = cast(Control, _Ill(a.control, self.ill))
        settings: dict[str, Any] = {"sender": lambda: self.subscribers, "threads": lambda: Inline()}
        return Deps(replace(a, control=control, invoker=self.inbox, archive=True, **settings))

    def short(self, questions: int) -> Callable[[], bool]:
        """Time that is up after so many questions."""
        answers = iter(range(questions))

        def has_time() -> bool:
            has_more = next(answers, None) is not None
            self.injected["a run out of time"] += not has_more
            return has_more

        return has_time

    def note(self, *words: object) -> None:
        self.path.append(" ".join(map(str, words)))

    def accuse(self, complaint: str) -> None:
        self.note("ACCUSED", complaint)
        self.complaints.append(complaint)


def play(seed: int) -> Hurry:
    """One seed's stage to its end, judged."""
    hurry = Hurry(seed)
    for n in range(hurry.random.choice((2, 3, 4, 5, 8, 12, 20))):
        _founds(hurry, f"t{n:02}")
    if hurry.random.random() < 0.3:
        _founds_huge(hurry)
    _sickens(hurry)
    _sweeps(hurry)
    hurry.ill.clear()
    _expires(hurry)
    return hurry


def story(hurry: Hurry, last: int = 80) -> str:
    """What a reader needs to understand a seed's failure."""
    return "\n".join([f"hurried, seed {hurry.seed}", *hurry.complaints, *hurry.path[-last:]])


def _founds(hurry: Hurry, name: str) -> None:
    """A topic, with a group without push consumers, and others with one push consumer or several."""
    rng, deps = hurry.random, hurry.process()
    topic, _ = deps.admin.put_topic(name, {"shards": rng.choice((1, 1, 2, 4)), "retention_days": 1})
    hurry.topics.append(topic)
    deps.admin.put_group(topic, _PULLED, {"begin": "earliest"})
    hurry.targets[name] = []
    for mode in rng.choices(("queue", "broadcast"), k=rng.choice((0, 1, 1, 2))):
        group, _ = deps.admin.put_group(topic, f"{mode}-{len(hurry.targets[name])}", {"mode": mode})
        for n in range(rng.choice((1, 2, 5)) if mode == "broadcast" else 1):
            target = f"https://{name}.{group.name}.example/{n}"
            deps.registry.register(topic, group, f"c{n}", Contact(ConsumerKind.URL, target))
            hurry.targets[name].append(target)
    hurry.note(name, topic.shards, "shards,", hurry.targets[name])


def _founds_huge(hurry: Hurry) -> None:
    """A topic for which no run has time: it must not delay other topics. Its own waits are not judged."""
    deps, name = hurry.process(), "t00-huge"
    topic, _ = deps.admin.put_topic(name, {"retention_days": 1})
    deps.admin.put_group(topic, _PULLED, {"begin": "earliest"})
    group, _ = deps.admin.put_group(topic, "broadcast", {"mode": "broadcast"})
    for n in range(_HUGE):
        target = f"https://{name}.example/{n}"
        deps.registry.register(topic, group, f"c{n}", Contact(ConsumerKind.URL, target))
    hurry.topics.append(topic)
    hurry.targets[name] = []
    hurry.injected["a topic that takes all the time"] += 1


def _sickens(hurry: Hurry) -> None:
    """Some topics cannot be looked at."""
    rng = hurry.random
    hurry.ill |= set(rng.sample([topic.name for topic in hurry.topics], rng.choice((0, 1, 1, 2))))
    hurry.injected["a topic that cannot be looked at"] += len(hurry.ill)
    hurry.note("cannot be looked at:", sorted(hurry.ill))


# The sweep


def _sweeps(hurry: Hurry) -> None:
    """Producers send, all wake-ups are lost, and a short sweep comes by each minute."""
    rng, topics = hurry.random, hurry.topics
    most = 2 + max(len(hurry.targets[topic.name]) for topic in topics)
    questions = most + rng.choice((0, 0, 1, 2, 5))
    busy = rng.choice((0.2, 1.0))  # so many topics have new messages in each minute
    producer = hurry.process()
    for minute in range((_ROUNDS + 1) * len(topics) + 1):
        if minute < _ROUNDS * len(topics):
            for topic in topics:
                if rng.random() < busy:
                    _sends(hurry, producer, topic)
        hurry.stage.clock.advance(MINUTE_MS)
        hurry.inbox.asked.clear()
        deps = hurry.process()
        report = deps.sweeper.run_once(hurry.short(questions))
        hurry.note("sweep", report.as_dict(), "up to", report.stretch.last)
        _delivers(hurry)
        _waits(hurry)


def _sends(hurry: Hurry, deps: Deps, topic: Topic) -> None:
    label = f"m{len(hurry.path)}"
    for result in deps.producer.produce(deps.catalog.topic(topic.name), [draft(label)]):
        assert isinstance(result, ProduceResult)
        assert result.shard is not None
        assert result.offset is not None
        hurry.places.append((topic.shard_key(result.shard), result.offset))
    if topic.name not in hurry.ill:
        hurry.owed += [Owed(label, target) for target in hurry.targets[topic.name]]
    hurry.note(topic.name, "accepts", label)


def _delivers(hurry: Hurry) -> None:
    """What the sweep woke."""
    deps = hurry.process()
    while hurry.inbox.asked:
        function, event = hurry.inbox.asked.popleft()
        if function == "deliver":
            deps.dispatcher.deliver(task_of(event), lambda: 600.0)


def _waits(hurry: Hurry) -> None:
    """Who still waits has waited for a run more."""
    bodies = zip(hurry.subscribers.calls, hurry.subscribers.bodies, strict=True)
    pushes = {(label_of(body), call.target) for call, body in bodies}
    hurry.owed = [delivery for delivery in hurry.owed if (delivery.label, delivery.target) not in pushes]
    for delivery in hurry.owed:
        delivery.runs += 1
        if delivery.runs == len(hurry.topics) + 1:
            hurry.accuse(f"{delivery.label} for {delivery.target} was not found in {delivery.runs} runs")


# The expirer


def _expires(hurry: Hurry) -> None:
    """The messages' retention ends, and then their rows' time: what no archive has is kept."""
    rng, topics, clock = hurry.random, hurry.topics, hurry.stage.clock
    pages = 2 * max(
        topic.shards for topic in topics
    )  # that the keeper reads of one topic: rows, and none behind
    questions = 2 + pages + rng.choice((0, 1, 3, 10))
    began_ms = clock.now_ms()
    clock.advance(30 * HOUR_MS)
    for run in range(len(topics) + 1):
        report = hurry.process().expirer.run_once(hurry.short(questions))
        hurry.note("expire", run, report.as_dict())
        clock.advance(5 * HOUR_MS // len(topics))
    clock.at_ms = began_ms + 2 * DAY_MS + HOUR_MS
    hurry.stage.drop_expired()
    for shard, offset in hurry.places:
        rows = hurry.stage.adapters.log.read_back(shard, offset, 1)
        if not rows or rows[0].end <= offset:
            hurry.accuse(f"offset {offset} of {shard} is gone, and no archive has it")
