"""A stage over weeks: topics and groups are made, changed, deleted and made again, rows end, functions run four times a
day or once a minute, in processes that were just born or have slept; and nobody loses a message by it.

Here one thing happens at a time, but by processes with caches, clocks and deaths of their own, and time leaps: what
lies between two calls is the other world's business (tests/simulation/world). What is judged is a ledger: everything
that was accepted is, for each group that is owed it, given until it is acknowledged, and then never again; or it is a
dead letter. The rows' end takes nothing that somebody is owed.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from chalicelib.adapters import memory_adapters
from chalicelib.domain.errors import HeadraceError, NotFound, unavailable
from chalicelib.domain.exchange import Exchange
from chalicelib.domain.limits import FRAGMENTS
from chalicelib.domain.message import Message
from chalicelib.domain.outcome import Outcome, Parcel, Verdict
from chalicelib.domain.signing import seal_receipt
from chalicelib.domain.topic import Consumer, Group, Topic
from chalicelib.domain.transaction import CheckAnswer, Transaction, TransactionState
from chalicelib.services.consume.claim import Delivery
from chalicelib.services.consume.settle import Nack
from chalicelib.services.core.wake import DeliveryTask, job_of
from chalicelib.services.manage.dead_letters import Wanted
from chalicelib.services.produce.appender import Placed
from chalicelib.services.produce.check_back import Check
from chalicelib.services.push.dispatcher import DispatchReport
from chalicelib.wiring import Deps
from tests.simulation.processes import LOCAL, PORTS
from tests.simulation.virtual import Scheduler
from tests.simulation.weather import Partition, partition_of
from tests.support.clock import DAY_MS, HOUR_MS, ManualClock, SeededRandom
from tests.support.events import Told
from tests.support.faults import Death
from tests.support.flows import draft, label_of, told
from tests.support.push import Inbox, Inline

_SLOT_MS = 6 * HOUR_MS
_TOPICS = ("beta", "omega")
_GROUPS = ("one", "two")
_DELAYS_MS = (2_000, 50_000, 3 * HOUR_MS, 2 * DAY_MS, 9 * DAY_MS)
_SHORTEST_ABSENCE_MS = 12_000  # a sign of life may be ten seconds older than it seems
_DISABLED_AFTER_MS = 5 * DAY_MS
_REFUSED = 0.9  # of the calls to a partition that is throttled
_MOST_ROUNDS = 400
_QUIET_ROUNDS = 2  # a sweep on a clock that is behind finds what was moved just now in its next run only
_MOST_CALLS = 200
_MOST_TRIES = 100

Deed = Callable[["Days"], object]


def _checked(checks: list[Check], deps: Deps) -> object:
    return deps.checker.check(checks, lambda: 60.0)


def _delivered(job: DeliveryTask, deps: Deps) -> DispatchReport:
    return deps.deliverer.deliver(job, lambda: 600.0)


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
    """A port whose caller dies at one of its calls, or finds a partition throttled."""

    def __init__(self, name: str, port: Any, seat: Seat, sky: Sky) -> None:
        self._name = name
        self._port = port
        self._seat = seat
        self._sky = sky

    def __getattr__(self, method: str) -> Any:
        work = getattr(self._port, method)

        def call(*args: Any, **named: Any) -> Any:
            self._seat.calls += 1
            if self._seat.calls == self._seat.last:
                raise Death(f"before {method}")
            if method not in LOCAL and self._sky.refuses(self._name, args):
                raise unavailable()
            return work(*args, **named)

        return call


class Sky:
    """Which partitions are throttled, and until when."""

    def __init__(self, clock: ManualClock, chance: random.Random) -> None:
        self._clock = clock
        self._random = chance
        self._until: dict[Partition, int] = {}
        self.used: dict[Partition, None] | None = None

    def darkens(self, ms: int) -> None:
        """Some partition that was used has too much to do for a while."""
        if self.used:
            self._until[self._random.choice(list(self.used))] = self._clock.at_ms + ms

    def clears(self) -> None:
        self.used = None
        self._until.clear()

    def refuses(self, port: str, args: tuple[Any, ...]) -> bool:
        if self.used is None:
            return False
        place = partition_of(port, args)
        self.used[place] = None
        return self._until.get(place, 0) > self._clock.at_ms and self._random.random() < _REFUSED


class Seat:
    """One process: its clock, its caches, and the call at which it dies (0: none). `sent` are attempts that it has made
    and not settled yet."""

    def __init__(self, days: Days, clock: SeatClock, name: str) -> None:
        self.clock = clock
        self.calls = 0
        self.last = 0
        self.sent: list[tuple[Member, str]] = []
        adapters = days.adapters
        ports: dict[str, Any] = {
            port: Mortal(port, getattr(adapters, port), self, days.sky) for port in PORTS
        }
        self.deps = Deps(
            replace(
                adapters,
                **ports,
                clock=clock,
                random=SeededRandom(name),
                invoker=days.inbox,
                threads=Inline,
                sender=lambda: Caller(days, self),
            )
        )


class Caller:
    """ports.Sender of one process."""

    def __init__(self, days: Days, seat: Seat) -> None:
        self._days = days
        self._seat = seat

    def send(self, consumer: Consumer, parcel: Parcel, seconds: float) -> tuple[Outcome, ...]:
        days, mood = self._days, self._days.moods[consumer.uid]
        home, member = days.served[consumer.uid]
        if mood == "strange":
            days.accuse(f"{consumer.name} is called, and has not agreed")
        outcomes = tuple(days.outcome(mood) for _ in parcel.attempts)
        days.note(f"{parcel.topic} {parcel.group} {consumer.name} ({mood}) is called {len(outcomes)} times")
        for attempt, outcome in zip(parcel.attempts, outcomes, strict=True):
            inspect(days, home, member, attempt.message, member is home.members.get(member.name))
            if outcome.verdict is Verdict.DONE:
                self._seat.sent.append((member, label_of(attempt.message.draft.body)))
        return outcomes

    def refusal(self, kind: str, target: str) -> str | None:
        return None

    def greet(self, url: str) -> Outcome:
        """Who is asked whether it may be called: strangers agree at the third time."""
        uid = url.rpartition("/")[2]
        self._days.asked[uid] += 1
        agrees = self._days.asked[uid] >= 3
        if agrees:
            for consumer_uid in self._days.targets[url]:
                self._days.moods[consumer_uid] = "good"
        return Outcome(Verdict.DONE if agrees else Verdict.FAILED)

    def ping(self, consumer: Consumer, id: str, seconds: float) -> Exchange:
        raise AssertionError("nobody is tested here")

    def ask(self, transaction: Transaction, secrets: Sequence[bytes], seconds: float) -> CheckAnswer:
        deal = self._days.deals.get(transaction.id)
        if deal is None or self._days.random.random() < 0.5:
            return CheckAnswer(None, "unknown")
        deal.asked = True
        return CheckAnswer(deal.truth, "told")


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
    ragged: bool  # up to every other run of a job has hardly any time
    themes: tuple[str, ...] = ()


@dataclass(slots=True)
class Member:
    """A life of a group, or of a broadcast's consumer: from its creation, or its last seek, to its deletion.

    It is owed what came after it and, if `from_ms` says so, what came since then; where it is `loose` nobody can tell
    what of the latter. `before` is what a seek found under way: that may come once more than it should."""

    group: Group
    since: int  # by the number of things that had happened
    since_ms: int
    from_ms: int | None = None
    consumer: str = ""
    is_called: bool = False
    loose: bool = False
    seen_ms: int = 0
    done: set[str] = field(default_factory=set)
    perhaps: set[str] = field(default_factory=set)  # acknowledged, and nobody heard the answer
    given: set[str] = field(default_factory=set)
    before: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)  # what came while it was away

    @property
    def name(self) -> str:
        return f"{self.group.name}/{self.consumer}" if self.consumer else self.group.name

    def begins_anew(self, since: int, since_ms: int) -> None:
        """A seek: what was done may come again."""
        self.before |= self.given - self.done
        self.done, self.perhaps, self.given = set(), set(), set()
        self.since, self.since_ms, self.loose = since, since_ms, False


@dataclass(frozen=True, slots=True)
class Accepted:
    """When a message was: after how many things, at what time, and when it was due. `waited`: nobody knows when it
    stood in the log."""

    number: int
    at_ms: int
    due_ms: int
    waited: bool


@dataclass(slots=True)
class Home:
    """A life of a topic, and what it has accepted, by label.
    `bodies` are those that a message may have after an edit; nobody knows whether what is `unsure` will come."""

    topic: Topic
    shortest_days: int
    members: dict[str, Member] = field(default_factory=dict)
    ghosts: list[Member] = field(default_factory=list)
    accepted: dict[str, Accepted] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    bodies: dict[str, set[str]] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Deal:
    """A message under a decision, and what that is to be; `asked`: perhaps it was told already."""

    home: Home
    label: str
    truth: TransactionState
    prepared: int
    prepared_ms: int
    due_ms: int
    asked: bool = False


def plan_of(seed: int) -> Plan:
    """The seed's weeks."""
    rng = random.Random(f"days {seed}")
    idle = rng.choice((0, 0, 12, 40))
    steps = rng.choice((None, 12 + idle))
    return Plan(
        seed=seed,
        idle=idle,
        steps=steps,
        reaped_after_ms=rng.choice((-10_000, 0, DAY_MS, None)),
        cold=rng.choice((0.1, 0.5, 1.0)),
        deaths=0.0 if steps else rng.choice((0.0, 0.1)),
        missed=0.0 if steps else rng.choice((0.0, 0.1)),
        skew_ms=rng.choice((0, 0, 10_000)),
        retention_days=rng.choice((1, 2, 7)),
        shards=rng.choice((1, 2, 3)),
        checkpoints=rng.random() < 0.7,
        ragged=rng.random() < 0.3,
        themes=tuple(rng.sample(THEMES, rng.choice((0, 1, 1, 2)))),
    )


THEMES = ("changes", "decisions", "seeks", "broadcasts", "calls", "throttled", "clocks")


class Days:
    """One seed's weeks; `complaints` is what was wrong, `path` what happened."""

    def __init__(self, plan: Plan) -> None:
        Scheduler()  # locks are those of its tasks, here as well
        self.plan = plan
        self.random = random.Random(plan.seed)
        self.clock = ManualClock()
        self.adapters = memory_adapters(self.clock, SeededRandom(f"days {plan.seed}"))
        self.inbox = Inbox()
        self.sky = Sky(self.clock, self.random)
        if "throttled" in plan.themes:
            self.sky.used = {}
        self.topics = _TOPICS
        self.numbers = 0
        self.deals: dict[str, Deal] = {}
        self.served: dict[str, tuple[Home, Member]] = {}  # by the uid of a consumer that is called
        self.moods: dict[str, str] = {}  # likewise
        self.targets: defaultdict[str, set[str]] = defaultdict(set)
        self.asked: Counter[str] = Counter()  # how often, by target
        self.bad_since_ms: dict[str, int] = {}  # likewise by uid, while it only fails
        self.disabled: set[str] = set()  # likewise
        self.homes: dict[str, Home] = {}
        self.gone: list[Home] = []
        self.held: list[tuple[Member, Topic, Delivery]] = []
        self.complaints: list[str] = []
        self.path: list[str] = []
        self.injected: Counter[str] = Counter()
        self._cut_short: set[str] = set()  # functions whose last run was missed, or ended before its time
        self._names = 0
        self.is_unanswered = False
        self.used: list[Seat] = []  # since the last delivery
        self.seats = [self.another() for _ in range(3)]
        self._slot = self.clock.at_ms // _SLOT_MS

    # Processes

    def another(self) -> Seat:
        self._names += 1
        skew_ms = self.random.randint(-self.plan.skew_ms, self.plan.skew_ms)
        clock = SeatClock(self.clock, skew_ms)
        return Seat(self, clock, f"{self.plan.seed}/{self._names}")

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
            self.seats[n] = self.another()
        seat = self.seats[n]
        self.used.append(seat)
        dies = mortal and self.random.random() < self.plan.deaths
        seat.last = seat.calls + self.random.randint(1, 12) if dies else 0
        self.is_unanswered = False
        try:
            answer = request(seat.deps)
        except HeadraceError as error:
            self.note(f"seat {n}", what, "->", error.code)
            self.is_unanswered = error.code == "UNAVAILABLE"
            return None
        except Death as death:
            self.injected["death"] += 1
            self.note(f"seat {n}", what, "->", death)
            self.seats[n] = self.another()
            return None
        seat.last = 0
        self.note(f"seat {n}", what)
        return answer

    def insist(self, what: str, request: Callable[[Deps], Any]) -> Any:
        """One request of somebody who repeats it until there is an answer."""
        for _ in range(_MOST_TRIES):
            answer = self.ask(what, request, mortal=False)
            if not self.is_unanswered:
                break
            self.passes(1_000_000)
        return answer

    def function(self, name: str, run: Callable[[Deps, Callable[[], bool]], Any]) -> None:
        """One run of a scheduled function: it may be missed, doubled, short of time, or die. The one after it is whole:
        rows that are past their retention wait for four runs, not for any number."""
        rng, plan = self.random, self.plan
        is_whole = name in self._cut_short
        self._cut_short.discard(name)
        draw = rng.random()
        times = 0 if draw < plan.missed and not is_whole else 2 if draw > 1 - plan.missed else 1
        if not times:
            self._cut_short.add(name)
        self.injected["irregular tick"] += times != 1
        for _ in range(times):
            seat = self.another() if rng.random() < plan.cold else rng.choice(self.seats)
            left = [plan.steps or 1 << 30]
            if is_whole:
                left = [1 << 30]
            elif plan.ragged and rng.random() < 0.5:
                left = [rng.randint(1, 6)]
                self._cut_short.add(name)

            def has_time(left: list[int] = left) -> bool:
                left[0] -= 1
                return left[0] >= 0

            if rng.random() < plan.deaths / 2 and not is_whole:
                seat.last = seat.calls + rng.randint(1, 200)
            try:
                report = run(seat.deps, has_time)
                self.note(name, report)
            except HeadraceError as error:
                self.note(name, "->", error.code)
            except Death as death:
                self.injected["death"] += 1
                self._cut_short.add(name)
                self.note(name, "->", death)
                self.seats = [self.another() if each is seat else each for each in self.seats]
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
        self.calls()

    def calls(self) -> None:
        """What was woken: deliveries and checks, and what they wake; movers come each minute anyway."""
        for _ in range(_MOST_CALLS):
            if not self.inbox.asked:
                return
            function, event = self.inbox.asked.popleft()
            if function == "check":
                checks = [Check(*each) for each in event["checks"]]
                self.ask("check", partial(_checked, checks))
            elif function == "deliver":
                job = job_of(event)
                report = self.ask(f"deliver {job}", partial(_delivered, job))
                self._settled(certain=report is not None and not report.stale)
                self._explain_disabled()
        self.inbox.asked.clear()

    def _settled(self, *, certain: bool) -> None:
        """A delivery has ended: what it sent is done, or perhaps."""
        for seat in self.used:
            for member, label in seat.sent:
                (member.done if certain else member.perhaps).add(label)
            seat.sent.clear()
        self.used.clear()

    def _explain_disabled(self) -> None:
        """Nobody may have been switched off who was not bad for as long as is said."""
        for uid, (home, member) in self.served.items():
            for consumer in self.adapters.control.consumers(home.topic, member.group):
                if consumer.uid != uid or consumer.state != "DISABLED" or uid in self.disabled:
                    continue
                self.disabled.add(uid)
                bad_ms = self.clock.at_ms - self.bad_since_ms.get(uid, self.clock.at_ms)
                is_long = bad_ms + 2 * self.plan.skew_ms >= _DISABLED_AFTER_MS
                if "Gone" not in (consumer.why or "") and not is_long:
                    self.accuse(f"{uid} was disabled after {bad_ms} ms: {consumer.why}")

    def outcome(self, mood: str) -> Outcome:
        """How a subscriber of this mood answers."""
        if mood == "mixed":
            mood = self.random.choice(("good", "failing"))
        return {
            "failing": Outcome(Verdict.FAILED, "HTTP 500", 500, answered=True),
            "silent": Outcome(Verdict.FAILED, "no answer in time"),
            "gone": Outcome(Verdict.GONE, "HTTP 410", 410, answered=True),
        }.get(mood, Outcome(Verdict.DONE, status=200, answered=True))

    def _reap(self) -> None:
        if self.plan.reaped_after_ms is None:
            return
        now_s = (self.clock.at_ms - self.plan.reaped_after_ms) // 1000
        for name in ("log", "cursors", "records", "transactions", "traces", "keys"):
            getattr(self.adapters, name).drop_expired(now_s)
        self.injected["rows reaped"] += 1

    # The end

    def calms(self) -> None:
        """No more trouble from now on."""
        self.plan = replace(self.plan, deaths=0.0, missed=0.0, cold=1.0, ragged=False)
        self.sky.clears()

    def heals(self) -> None:
        """Everybody takes what can be had, until there is no more. Who has not agreed is asked when
        the job that comes by all topics has come by."""
        for _ in range(4):
            if not self._has_strangers():
                break
            self.passes((self._slot + 1) * _SLOT_MS - self.clock.at_ms)
            for _ in range(4):
                self.passes(60_000)
        quiet = 0
        for _ in range(_MOST_ROUNDS):
            self.clock.at_ms += 11 * 60_000
            done = self._done()
            if self.served or "decisions" in self.plan.themes:
                self.minute()
            else:
                self.function("mover", lambda deps, _: deps.mover.tick(range(FRAGMENTS)))
            for home, member in list(self.members()):
                if not member.is_called:
                    self._drained(home, member)
            taken = self._done() - done
            next_ms = self._awaited()
            quiet = 0 if taken or next_ms else quiet + 1
            if quiet == _QUIET_ROUNDS:
                return
            if not taken and next_ms:
                self.clock.at_ms = max(self.clock.at_ms, next_ms)
        self.accuse("there is no end to what is received")

    def _has_strangers(self) -> bool:
        """Is there anybody who is asked whether it may be called?"""
        members = [member for _, member in self.members()]
        return any(self.moods[uid] == "strange" for uid, (_, m) in self.served.items() if m in members)

    def _done(self) -> int:
        return sum(len(member.done) + len(member.perhaps) for _, member in self.members())

    def _awaited(self) -> int | None:
        timers = self.adapters.timers
        times = [t for f in range(FRAGMENTS) if (t := timers.next_ms(f, consistent=True)) is not None]
        return min(times, default=None)

    def members(self) -> Iterator[tuple[Home, Member]]:
        for home in self.homes.values():
            for member in home.members.values():
                yield home, member

    def _drained(self, home: Home, member: Member) -> int:
        taken = 0
        while got := received(self, home, member.name, 100):
            self.ask("ack", partial(_ack, home.topic.name, member.group.name, got), mortal=False)
            member.done.update(label_of(d.message.draft.body) for d in got)
            taken += len(got)
        return taken

    def judge(self) -> None:
        """Everything that somebody is owed has its end, and the numbers that are shown say so."""
        deps = self.another().deps
        for home, member in self.members():
            try:
                topic = deps.catalog.topic(home.topic.name)
                group = deps.catalog.group(topic, member.group.name)
            except NotFound as gone:
                self.accuse(str(gone))
                continue
            consumer = next(
                (c.uid for c in deps.catalog.consumers(topic, group) if c.name == member.consumer), ""
            )
            letters = {
                label_of(letter.message.draft.body)
                for _, letter in deps.adapters.records.dead(topic, group, None, 10_000)
                if letter.key.consumer_uid == consumer
            }
            owed = {label for label in home.accepted if self._owes(home, member, label)}
            if lost := owed - member.done - member.perhaps - letters:
                self.accuse(f"{member.name} of {topic.name} was never given {sorted(lost)}")
            status = deps.lookup.group_status(topic, group)
            counts = status.backlog, status.in_flight, status.retrying
            if any(counts):
                self.accuse(f"{group.name} of {topic.name} counts {counts} at rest")
            logged = sum(max(each.tail + 1, each.cursor.next) for each in status.shards)
            if status.account.total != logged:
                self.accuse(f"{group.name} of {topic.name} has {status.account}, which is not {logged}")

    def _owes(self, home: Home, member: Member, label: str) -> bool:
        if label in home.cancelled or label in home.unsure or label in member.skipped:
            return False
        if member.is_called and member.group.offline == "skip":
            return False  # when it was away, its breaker and its handshake know
        accepted = home.accepted[label]
        if accepted.number > member.since:
            return True
        came_ms = max(accepted.at_ms, accepted.due_ms)
        if member.from_ms is None or member.loose or came_ms < member.from_ms:
            return False
        return member.since_ms - came_ms < home.shortest_days * DAY_MS - _SLOT_MS


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
            home.accepted[label] = Accepted(len(days.path), now_ms, due_ms or now_ms, waited=bool(due_ms))
            home.ids[label] = outcome.id


def receives(days: Days) -> None:
    """A consumer: it acknowledges, refuses or forgets what it got, or does so later."""
    home = days.random.choice(list(days.homes.values()) or [None])
    if home is None:
        return
    names = sorted(name for name, member in home.members.items() if not member.is_called)
    name = days.random.choice(names or list(_GROUPS))
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
            days.ask("nack", partial(_nack, home.topic.name, member.group.name, got, nack))
        case "bury":
            bury = Nack(dead_letter=True)
            days.ask("bury", partial(_nack, home.topic.name, member.group.name, got, bury))


def received(days: Days, home: Home, name: str, most: int) -> list[Delivery]:
    """What a receive gives, judged by the ledger."""
    topic_name = home.topic.name
    live = home.members.get(name)
    group_name, _, consumer_name = name.partition("/")
    if live and live.consumer:
        shows_life(days, home, live)

    def request(deps: Deps) -> list[Delivery]:
        topic = deps.catalog.topic(topic_name)
        group = deps.catalog.group(topic, group_name)
        consumer = None
        if consumer_name:
            consumer = deps.catalog.consumer(topic, group, consumer_name)
            deps.admin.sign_of_life(topic, group, consumer)
        return deps.receiver.receive(topic, group, consumer, most, 0, 60)

    got: list[Delivery] = days.ask(f"receive {topic_name} {name} {most}", request) or []
    members = {each.group.uid: each for each in _lives(days, topic_name, name)}
    for each in got:
        inspect(
            days, home, members[each.receipt.group_uid], each.message, members[each.receipt.group_uid] is live
        )
    return [each for each in got if live and each.receipt.group_uid == live.group.uid]


def shows_life(days: Days, home: Home, member: Member) -> None:
    """A consumer of a broadcast is there: if it was away, and its group skips, what came meanwhile is not owed."""
    now_ms = days.clock.at_ms
    if member.group.offline == "skip" and now_ms - member.seen_ms > _SHORTEST_ABSENCE_MS:
        member.skipped |= home.accepted.keys() - member.done
    member.seen_ms = now_ms


def inspect(days: Days, home: Home, member: Member, message: Message, is_live: bool) -> None:
    """A message was given to somebody: may it be?"""
    label, about = label_of(message.draft.body), f"{member.name} of {home.topic.name}"
    is_of_before = label in member.before
    is_first = label not in member.given
    if label in member.done and not is_of_before:
        days.accuse(f"{about} was given {label} again")
    member.given.add(label)
    if not is_live:
        return
    accepted = home.accepted.get(label)
    now_ms = days.clock.at_ms
    body = message.draft.body.decode().strip('"')
    if label in home.cancelled:
        days.accuse(f"{about} was given {label}, which was taken back")
    elif any(deal.label == label and not deal.asked for deal in days.deals.values()):
        days.accuse(f"{about} was given {label}, on which nobody has decided")
    elif label in home.bodies and body not in home.bodies[label] and not is_of_before:
        days.accuse(f"{about} was given {body}, and it was edited")
    if accepted is None:
        if any(label in old.accepted for old in days.gone):
            days.accuse(f"{about} was given {label} of a former {home.topic.name}")
        return
    if accepted.due_ms - 2 * days.plan.skew_ms > now_ms:
        days.accuse(f"{about} was given {label} {accepted.due_ms - now_ms} ms early")
    is_owed_new_only = member.from_ms is None and not member.loose and not is_of_before and is_first
    if is_owed_new_only and accepted.number < member.since and not accepted.waited:
        days.accuse(f"{about} was given {label} of before its time")


def _lives(days: Days, topic: str, name: str) -> Iterator[Member]:
    for home in (*days.gone, *days.homes.values()):
        if home.topic.name == topic:
            yield from (m for m in (*home.members.values(), *home.ghosts) if m.name == name)


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
    group = home.members[days.random.choice(sorted(home.members))].group.name
    settings = {"lease_seconds": days.random.choice((5, 60)), "max_in_flight": days.random.choice((1, 64))}
    days.ask(
        f"change {group} of {name}",
        lambda deps: deps.admin.put_group(deps.catalog.topic(name, fresh=True), group, settings),
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
        days.insist(
            f"delete {group} of {name}",
            lambda deps: deps.admin.delete_group(
                topic := deps.catalog.topic(name, fresh=True), deps.admin.group_to_delete(topic, group)
            ),
        )
    if member is None or days.random.random() < 0.5:
        _put_group(days, home, group)


def remakes_topic(days: Days) -> None:
    """A topic is deleted, and mostly made again, soon or late."""
    name = days.random.choice(_TOPICS)
    if home := days.homes.pop(name, None):
        days.gone.append(home)
        days.insist(f"delete {name}", lambda deps: deps.admin.delete_topic(deps.admin.topic_to_delete(name)))
    if home is None or days.random.random() < 0.7:
        founds(days, name)


def founds(days: Days, name: str) -> None:
    """A topic is made, with a group or two."""
    plan = days.plan
    _put_topic(days, name, {"retention_days": plan.retention_days, "shards": plan.shards})
    for group in _GROUPS[: days.random.choice((1, 2))]:
        _put_group(days, days.homes[name], group)


def _put_topic(days: Days, name: str, settings: dict[str, Any]) -> None:
    answer = days.insist(f"put {name} {settings}", lambda deps: deps.admin.put_topic(name, settings))
    if answer is None:
        return
    topic = answer[0]
    if home := days.homes.get(name):
        home.topic, home.shortest_days = topic, min(home.shortest_days, topic.retention_days)
    else:
        days.homes[name] = Home(topic, topic.retention_days)


def _put_group(days: Days, home: Home, name: str) -> None:
    begin = days.random.choice(("earliest", "latest"))
    topic_name, since = home.topic.name, len(days.path)
    answer = days.insist(
        f"put {name} of {topic_name} from {begin}",
        lambda deps: deps.admin.put_group(
            deps.catalog.topic(topic_name, fresh=True), name, {"begin": begin, "mode": "queue"}
        ),
    )
    if answer is not None:
        from_ms = 0 if begin == "earliest" else None
        first = len(days.path) == since + 1
        now = (len(days.path), days.clock.at_ms)
        home.members[name] = Member(answer[0], *now, from_ms, loose=not first)


def redrives(days: Days) -> None:
    """Some dead letters are sent again."""
    home = days.homes.get(name := days.random.choice(_TOPICS))
    if home is None or not home.members:
        return
    group = home.members[days.random.choice(sorted(home.members))].group.name

    def request(deps: Deps) -> int:
        topic = deps.catalog.topic(name)
        found = deps.catalog.group(topic, group)
        letters = deps.redriver.page(topic, found, Wanted(), None, 5)[0]
        for member in home.members.values():
            if member.group.name == group:
                member.given |= {label_of(letter.message.draft.body) for letter in letters}
        return deps.redriver.redrive(topic, found, letters)

    days.ask(f"redrive {group} of {name}", request)
