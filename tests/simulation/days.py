"""A stage over weeks: topics and groups are made, changed, deleted and made again, rows end, functions run four times a
day or once a minute, in processes that were just born or have slept; and nobody loses a message by it.

Here one thing happens at a time, but by processes with caches, clocks and deaths of their own, and time leaps: what
lies between two calls is the other world's business (tests/simulation/world). What is judged is a ledger: everything
that was accepted is, for each group that is owed it, given until it is acknowledged, and then never again; or it is a
dead letter. The rows' end takes nothing that somebody is owed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from chalicelib.adapters import Adapters, memory_adapters
from chalicelib.domain.errors import HeadraceError, NotFound
from chalicelib.domain.limits import FRAGMENTS
from chalicelib.domain.signing import seal_receipt
from chalicelib.domain.topic import Group, Topic
from chalicelib.services.append import Placed
from chalicelib.services.claim import Delivery
from chalicelib.services.redrive import Wanted
from chalicelib.services.settle import Nack
from chalicelib.wiring import Deps
from tests.simulation.processes import PORTS
from tests.simulation.virtual import Scheduler
from tests.support.clock import DAY_MS, HOUR_MS, ManualClock, SeededChance
from tests.support.events import Told
from tests.support.faults import Death
from tests.support.flows import draft, label_of, told
from tests.support.push import Inbox, Inline

_SLOT_MS = 6 * HOUR_MS
_DEEDS = 60
_TOPICS = ("beta", "omega")
_GROUPS = ("one", "two")
_DELAYS_MS = (2_000, 50_000, 3 * HOUR_MS, 2 * DAY_MS)
_MOST_ROUNDS = 400

Deed = Callable[["Days"], object]


class SeatClock:
    """ports.Clock of one process, some seconds from the true time."""

    def __init__(self, of: ManualClock, skew_ms: int) -> None:
        self._of = of
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        return self._of.now_ms() + self.skew_ms

    def sleep(self, seconds: float) -> None:
        self._of.sleep(seconds)


class Mortal:
    """A port whose caller dies at one of its calls."""

    def __init__(self, port: Any, seat: Seat) -> None:
        self._port = port
        self._seat = seat

    def __getattr__(self, method: str) -> Any:
        work = getattr(self._port, method)

        def call(*args: Any, **named: Any) -> Any:
            self._seat.calls += 1
            if self._seat.calls == self._seat.last:
                raise Death(f"before {method}")
            return work(*args, **named)

        return call


class Seat:
    """One process: its clock, its caches, and the call at which it dies (0: none)."""

    def __init__(self, adapters: Adapters, clock: SeatClock, name: str, inbox: Inbox) -> None:
        self.clock = clock
        self.calls = 0
        self.last = 0
        ports = {port: Mortal(getattr(adapters, port), self) for port in PORTS}
        self.deps = Deps(
            replace(adapters, **ports, clock=clock, chance=SeededChance(name), invoker=inbox, threads=Inline)  # type: ignore[arg-type]
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """What a seed decides beforehand. `idle` topics lie beside those that are used; a run of a job has time for so many
    of its steps; rows go so long after their end (None: never)."""

    seed: int
    idle: int
    steps: int | None
    reaped_after_ms: int | None
    cold: float
    deaths: float
    missed: float
    skew_ms: int
    retention_days: int
    shards: int
    checkpoints: bool


@dataclass(slots=True)
class Member:
    """A life of a group: from its creation to its deletion."""

    group: Group
    since: int  # by the number of things that had happened
    since_ms: int
    earliest: bool
    done: set[str] = field(default_factory=set)
    perhaps: set[str] = field(default_factory=set)  # acknowledged, and nobody heard the answer


@dataclass(slots=True)
class Home:
    """A life of a topic. `accepted`, by label: after how many things it was, when, and when the message was due."""

    topic: Topic
    shortest_days: int
    members: dict[str, Member] = field(default_factory=dict)
    ghosts: list[Member] = field(default_factory=list)
    accepted: dict[str, tuple[int, int, int]] = field(default_factory=dict)


def plan_of(seed: int) -> Plan:
    """The seed's weeks."""
    rng = random.Random(f"days {seed}")
    idle = rng.choice((0, 0, 12, 40))
    steps = rng.choice((None, 12 + idle))
    return Plan(
        seed=seed,
        idle=idle,
        steps=steps,
        reaped_after_ms=rng.choice((0, 0, DAY_MS, None)),
        cold=rng.choice((0.1, 0.5, 1.0)),
        deaths=0.0 if steps else rng.choice((0.0, 0.1)),
        missed=0.0 if steps else rng.choice((0.0, 0.1)),
        skew_ms=rng.choice((0, 0, 10_000)),
        retention_days=rng.choice((1, 2, 7)),
        shards=rng.choice((1, 2, 3)),
        checkpoints=rng.random() < 0.7,
    )


class Days:
    """One seed's weeks; `complaints` is what was wrong, `path` what happened."""

    def __init__(self, plan: Plan) -> None:
        Scheduler()  # locks are those of its tasks, here as well
        self.plan = plan
        self.random = random.Random(plan.seed)
        self.clock = ManualClock()
        self.adapters = memory_adapters(self.clock, SeededChance(f"days {plan.seed}"))
        self.inbox = Inbox()
        self.homes: dict[str, Home] = {}
        self.gone: list[Home] = []
        self.held: list[tuple[Member, Topic, Delivery]] = []
        self.complaints: list[str] = []
        self.path: list[str] = []
        self.injected: Counter[str] = Counter()
        self._names = 0
        self.seats = [self._seat() for _ in range(3)]
        self._slot = self.clock.at_ms // _SLOT_MS

    # Processes

    def _seat(self) -> Seat:
        self._names += 1
        skew_ms = self.random.randint(-self.plan.skew_ms, self.plan.skew_ms)
        clock = SeatClock(self.clock, skew_ms)
        return Seat(self.adapters, clock, f"{self.plan.seed}/{self._names}", self.inbox)

    def note(self, *words: object) -> None:
        now_ms = self.clock.at_ms - 4_102_444_800_000
        self.path.append(f"{now_ms / HOUR_MS:.4f} h  " + " ".join(map(str, words)))

    def accuse(self, complaint: str) -> None:
        self.note("ACCUSED", complaint)
        self.complaints.append(complaint)

    def ask(self, what: str, request: Callable[[Deps], Any], *, mortal: bool = True) -> Any:
        """One request to some process; None where it was refused, or nobody knows what came of it."""
        n = self.random.randrange(len(self.seats))
        if self.random.random() < self.plan.cold / 4:
            self.seats[n] = self._seat()
        seat = self.seats[n]
        dies = mortal and self.random.random() < self.plan.deaths
        seat.last = seat.calls + self.random.randint(1, 12) if dies else 0
        try:
            answer = request(seat.deps)
        except HeadraceError as error:
            self.note(f"seat {n}", what, "->", error.code)
            return None
        except Death as death:
            self.injected["death"] += 1
            self.note(f"seat {n}", what, "->", death)
            self.seats[n] = self._seat()
            return None
        seat.last = 0
        self.note(f"seat {n}", what)
        return answer

    def function(self, name: str, run: Callable[[Deps, Callable[[], bool]], Any]) -> None:
        """One run of a scheduled function: it may be missed, doubled, short of time, or die."""
        rng, plan = self.random, self.plan
        draw = rng.random()
        times = 0 if draw < plan.missed else 2 if draw > 1 - plan.missed else 1
        self.injected["irregular tick"] += times != 1
        for _ in range(times):
            seat = self._seat() if rng.random() < plan.cold else rng.choice(self.seats)
            left = [plan.steps or 1 << 30]

            def has_time(left: list[int] = left) -> bool:
                left[0] -= 1
                return left[0] >= 0

            if rng.random() < plan.deaths / 2:
                seat.last = seat.calls + rng.randint(1, 200)
            try:
                report = run(seat.deps, has_time)
                self.note(name, report)
            except HeadraceError as error:
                self.note(name, "->", error.code)
            except Death as death:
                self.injected["death"] += 1
                self.note(name, "->", death)
                self.seats = [self._seat() if each is seat else each for each in self.seats]
            seat.last = 0

    # Time

    def passes(self, ms: int) -> None:
        """Time passes: four times a day rows are looked after, and those whose end has come go."""
        end_ms = self.clock.at_ms + ms
        while (self._slot + 1) * _SLOT_MS <= end_ms:
            self._slot += 1
            self.clock.at_ms = max(self.clock.at_ms, self._slot * _SLOT_MS + self.random.randrange(600_000))
            self.function("expire", lambda deps, has_time: deps.expirer.run_once(has_time))
            if self.plan.checkpoints:
                self.function("checkpoint", lambda deps, has_time: deps.checkpointer.run_once(has_time))
            self._reap()
            self.function("mover", lambda deps, _: deps.mover.tick(range(FRAGMENTS)))
        self.clock.at_ms = max(self.clock.at_ms, end_ms)
        self.minute()

    def minute(self) -> None:
        """What runs each minute."""
        self.function("mover", lambda deps, _: deps.mover.tick(range(FRAGMENTS)))
        self.function("sweep", lambda deps, has_time: deps.sweeper.run_once(has_time))
        self.function("assign", lambda deps, has_time: deps.assigner.run_once(has_time))
        self.inbox.asked.clear()  # nobody is called here

    def _reap(self) -> None:
        if self.plan.reaped_after_ms is None:
            return
        now_s = (self.clock.at_ms - self.plan.reaped_after_ms) // 1000
        for name in ("log", "records", "transactions", "traces"):
            getattr(self.adapters, name).drop_expired(now_s)
        self.injected["rows reaped"] += 1

    # The end

    def heals(self) -> None:
        """No more deaths; everybody takes what can be had, until there is no more."""
        self.plan = replace(self.plan, deaths=0.0, missed=0.0, cold=1.0)
        for _ in range(_MOST_ROUNDS):
            self.clock.at_ms += 11 * 60_000
            self.function("mover", lambda deps, _: deps.mover.tick(range(FRAGMENTS)))
            taken = sum(self._drained(home, member) for home, member in list(self._members()))
            if not taken and not self._awaited():
                return
            if not taken and (next_ms := self._awaited()):
                self.clock.at_ms = max(self.clock.at_ms, next_ms)
        self.accuse("there is no end to what is received")

    def _awaited(self) -> int | None:
        timers = self.adapters.timers
        times = [t for f in range(FRAGMENTS) if (t := timers.next_ms(f, consistent=True)) is not None]
        return min(times, default=None)

    def _members(self) -> Iterator[tuple[Home, Member]]:
        for home in self.homes.values():
            for member in home.members.values():
                yield home, member

    def _drained(self, home: Home, member: Member) -> int:
        taken = 0
        while got := received(self, home, member.group.name, 100):
            self.ask("ack", partial(_ack, home.topic.name, member.group.name, got), mortal=False)
            member.done.update(label_of(d.message.draft.body) for d in got)
            taken += len(got)
        return taken

    def judge(self) -> None:
        """Everything that somebody is owed has its end, and the numbers that are shown say so."""
        deps = self._seat().deps
        for home, member in self._members():
            try:
                topic = deps.catalog.topic(home.topic.name)
                group = deps.catalog.group(topic, member.group.name)
            except NotFound as gone:
                self.accuse(str(gone))
                continue
            letters = {
                label_of(letter.message.draft.body)
                for _, letter in deps.adapters.records.dead(topic, group, None, 10_000)
            }
            owed = {label for label in home.accepted if self._owes(home, member, label)}
            if lost := owed - member.done - member.perhaps - letters:
                self.accuse(f"{group.name} of {topic.name} was never given {sorted(lost)}")
            status = deps.lookup.group_status(topic, group)
            counts = status.backlog, status.in_flight, status.retrying
            if any(counts):
                self.accuse(f"{group.name} of {topic.name} counts {counts} at rest")

    def _owes(self, home: Home, member: Member, label: str) -> bool:
        accepted, accepted_ms, due_ms = home.accepted[label]
        if accepted > member.since:
            return True
        old_ms = member.since_ms - max(accepted_ms, due_ms)
        return member.earliest and old_ms < home.shortest_days * DAY_MS - _SLOT_MS


# Deeds


def sends(days: Days) -> None:
    """A producer; what it was not told of may have come or not."""
    name = days.random.choice(_TOPICS)
    home = days.homes.get(name)
    delay_ms = days.random.choice((0, 0, 0, *_DELAYS_MS))
    now_ms = days.clock.at_ms
    due_ms = now_ms + delay_ms if delay_ms else None
    labels = [f"m{len(days.path)}-{n}" for n in range(days.random.choice((1, 1, 3, 20)))]
    drafts = [
        draft(label, due_ms=due_ms, ordering_key=days.random.choice(("a", "b", None))) for label in labels
    ]
    outcomes = days.ask(
        f"produce {name} {labels[0]}+{len(labels)} due in {delay_ms}",
        lambda deps: deps.producer.produce(deps.catalog.topic(name), drafts),
    )
    for label, outcome in zip(labels, outcomes or (), strict=False):
        if isinstance(outcome, Placed) and home is not None:
            home.accepted[label] = (len(days.path), now_ms, due_ms or now_ms)


def receives(days: Days) -> None:
    """A consumer: it acknowledges, refuses or forgets what it got, or does so later."""
    home = days.random.choice(list(days.homes.values()) or [None])
    if home is None:
        return
    name = days.random.choice(_GROUPS)
    got = received(days, home, name, days.random.choice((1, 3, 50)))
    if not got:
        return
    member = home.members[name]
    match days.random.choice(("ack", "ack", "ack", "nack", "bury", "forget", "keep")):
        case "ack":
            settles(days, member, home.topic, got)
        case "keep":
            days.held += [(member, home.topic, each) for each in got]
        case "nack":
            nack = Nack(days.random.choice((0, 5_000, HOUR_MS, 3 * DAY_MS)))
            days.ask("nack", partial(_nack, home.topic.name, name, got, nack))
        case "bury":
            days.ask("bury", partial(_nack, home.topic.name, name, got, Nack(dead_letter=True)))


def received(days: Days, home: Home, name: str, most: int) -> list[Delivery]:
    """What a receive gives, judged by the ledger."""
    topic_name = home.topic.name
    got: list[Delivery] = (
        days.ask(
            f"receive {topic_name} {name} {most}",
            lambda deps: deps.receiver.receive(
                topic := deps.catalog.topic(topic_name), deps.catalog.group(topic, name), None, most, 0, 60
            ),
        )
        or []
    )
    live = home.members.get(name)
    members = {each.group.uid: each for each in _lives(days, topic_name, name)}
    now_ms = days.clock.at_ms
    for each in got:
        label = label_of(each.message.draft.body)
        member = members[each.receipt.group_uid]
        if label in member.done:
            days.accuse(f"{name} of {topic_name} was given {label} again")
        if member is not live:
            continue
        times = home.accepted.get(label)
        if times is None and any(label in old.accepted for old in days.gone):
            days.accuse(f"{name} of {topic_name} was given {label} of a former {topic_name}")
        elif times and times[2] - 2 * days.plan.skew_ms > now_ms:
            days.accuse(f"{name} of {topic_name} was given {label} {times[2] - now_ms} ms early")
        elif times and not member.earliest and times[0] < member.since and times[1] == times[2]:
            days.accuse(f"{name} of {topic_name} was given {label} of before its time")
    return [each for each in got if live and each.receipt.group_uid == live.group.uid]


def _lives(days: Days, topic: str, group: str) -> Iterator[Member]:
    for home in (*days.gone, *days.homes.values()):
        if home.topic.name == topic:
            yield from (m for m in (*home.members.values(), *home.ghosts) if m.group.name == group)


def settles(days: Days, member: Member, topic: Topic, got: list[Delivery]) -> None:
    """An ack; what it says of each is believed."""
    answers = days.ask(f"ack {len(got)}", partial(_ack, topic.name, member.group.name, got))
    labels = [label_of(each.message.draft.body) for each in got]
    if answers is None:
        member.perhaps.update(labels)
        return
    answered = {label: told(answer) for label, answer in zip(labels, answers, strict=True)}
    member.done |= {label for label, answer in answered.items() if answer is Told.OK}
    member.perhaps |= {label for label, answer in answered.items() if answer is Told.UNKNOWN}


def settles_late(days: Days) -> None:
    """What was kept is acknowledged at last, perhaps in vain."""
    held, days.held = days.held, []
    for member, topic, each in held:
        settles(days, member, topic, [each])


def _ack(topic_name: str, name: str, got: list[Delivery], deps: Deps) -> Any:
    topic = deps.catalog.topic(topic_name)
    group = deps.catalog.group(topic, name)
    return deps.settler.ack(topic, group, _receipts(deps, got))


def _nack(topic_name: str, name: str, got: list[Delivery], how: Nack, deps: Deps) -> Any:
    topic = deps.catalog.topic(topic_name)
    return deps.settler.nack(topic, deps.catalog.group(topic, name), _receipts(deps, got), how)


def _receipts(deps: Deps, got: list[Delivery]) -> list[str]:
    return [seal_receipt(deps.signing_key, each.receipt) for each in got]


def changes_topic(days: Days) -> None:
    """A topic's settings: it keeps messages for longer or shorter, and may grow."""
    home = days.homes.get(name := days.random.choice(_TOPICS))
    if home is None:
        return
    settings: dict[str, Any] = {"retention_days": days.random.choice((1, 2, 7, 30))}
    if days.random.random() < 0.3 and home.topic.shards < 4:
        settings["shards"] = home.topic.shards + 1
    _put_topic(days, name, settings)


def changes_group(days: Days) -> None:
    """A group's settings, those that change nothing about what is owed."""
    home = days.homes.get(name := days.random.choice(_TOPICS))
    if home is None or not home.members:
        return
    group = days.random.choice(sorted(home.members))
    settings = {"lease_seconds": days.random.choice((5, 60)), "max_in_flight": days.random.choice((1, 64))}
    days.ask(
        f"change {group} of {name}",
        lambda deps: deps.admin.put_group(deps.catalog.topic(name), group, settings),
        mortal=False,
    )


def remakes_group(days: Days) -> None:
    """A group is deleted, or made (again)."""
    home = days.homes.get(name := days.random.choice(_TOPICS))
    if home is None:
        return
    group = days.random.choice(_GROUPS)
    if member := home.members.pop(group, None):
        home.ghosts.append(member)
        days.ask(
            f"delete {group} of {name}",
            lambda deps: deps.admin.delete_group(
                topic := deps.catalog.topic(name), deps.catalog.group(topic, group)
            ),
            mortal=False,
        )
    if member is None or days.random.random() < 0.5:
        _put_group(days, home, group)


def remakes_topic(days: Days) -> None:
    """A topic is deleted, and mostly made again, soon or late."""
    name = days.random.choice(_TOPICS)
    if home := days.homes.pop(name, None):
        days.gone.append(home)
        days.ask(
            f"delete {name}", lambda deps: deps.admin.delete_topic(deps.catalog.topic(name)), mortal=False
        )
    if home is None or days.random.random() < 0.7:
        founds(days, name)


def founds(days: Days, name: str) -> None:
    """A topic is made, with a group or two."""
    plan = days.plan
    _put_topic(days, name, {"retention_days": plan.retention_days, "shards": plan.shards})
    for group in _GROUPS[: days.random.choice((1, 2))]:
        _put_group(days, days.homes[name], group)


def _put_topic(days: Days, name: str, settings: dict[str, Any]) -> None:
    answer = days.ask(
        f"put {name} {settings}", lambda deps: deps.admin.put_topic(name, settings), mortal=False
    )
    if answer is None:
        return
    topic = answer[0]
    if home := days.homes.get(name):
        home.topic, home.shortest_days = topic, min(home.shortest_days, topic.retention_days)
    else:
        days.homes[name] = Home(topic, topic.retention_days)


def _put_group(days: Days, home: Home, name: str) -> None:
    begin = days.random.choice(("earliest", "latest"))
    topic_name = home.topic.name
    answer = days.ask(
        f"put {name} of {topic_name} from {begin}",
        lambda deps: deps.admin.put_group(
            deps.catalog.topic(topic_name), name, {"begin": begin, "mode": "queue"}
        ),
        mortal=False,
    )
    if answer is not None:
        home.members[name] = Member(answer[0], len(days.path), days.clock.at_ms, begin == "earliest")


def redrives(days: Days) -> None:
    """Some dead letters are sent again."""
    home = days.homes.get(name := days.random.choice(_TOPICS))
    if home is None or not home.members:
        return
    group = days.random.choice(sorted(home.members))

    def request(deps: Deps) -> int:
        topic = deps.catalog.topic(name)
        found = deps.catalog.group(topic, group)
        letters = deps.redriver.page(topic, found, Wanted(), None, 5)[0]
        return deps.redriver.redrive(topic, found, letters)

    days.ask(f"redrive {group} of {name}", request)


def _wait(least_ms: int, most_ms: int) -> Deed:
    return lambda days: days.passes(days.random.randint(least_ms, most_ms))


DEEDS: tuple[tuple[int, Deed], ...] = (
    (16, sends),
    (14, receives),
    (3, settles_late),
    (3, changes_topic),
    (1, changes_group),
    (2, remakes_group),
    (1, remakes_topic),
    (2, redrives),
    (10, _wait(100, 4_000)),
    (4, _wait(60_000, 600_000)),
    (4, _wait(HOUR_MS, 20 * HOUR_MS)),
    (2, _wait(DAY_MS, 4 * DAY_MS)),
)


def play(seed: int) -> Days:
    """One seed's weeks, to their end, judged."""
    days = Days(plan_of(seed))
    control = days.adapters.control
    for n in range(days.plan.idle):
        topic = Topic(f"idle-{n:03}", f"uid{n:05}", days.clock.at_ms, shards=1)
        control.put_topic(topic, None)
        control.put_group(topic, Group(topic.name, "nobody", f"gid{n:05}", days.clock.at_ms, "queue"), None)
    for name in _TOPICS:
        founds(days, name)
    weights, deeds = zip(*DEEDS, strict=True)
    for deed in days.random.choices(deeds, weights, k=_DEEDS):
        deed(days)
    days.heals()
    days.judge()
    return days


def story(days: Days, last: int = 80) -> str:
    """What a reader needs to understand a seed's failure, and to see it again."""
    return "\n".join([f"days, seed {days.plan.seed}: {days.plan}", *days.complaints, *days.path[-last:]])
