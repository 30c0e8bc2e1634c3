"""A stage over weeks: topics and groups are created, changed, deleted and created again, rows expire, functions run
four times a day or once a minute, in processes that have just started or have slept; and no message is lost.

Here one thing happens at a time, but by processes with caches, clocks and deaths of their own, and time leaps: what
lies between two calls is the other world's business (tests/simulation/world). A ledger is judged: every accepted
message is, for each group that is owed it, given until it is acknowledged, and then never again; or it is a
dead letter. The expiry of rows takes nothing that a group is owed.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from chalicelib.domain.call_result import CallResult, Verdict
from chalicelib.domain.errors import HeadraceError, Unreadable
from chalicelib.domain.times import DAY_MS, HOUR_MS
from chalicelib.domain.topic import Topic
from chalicelib.services.consume.claimant import ClaimedMessage
from chalicelib.services.core.wake import DispatchTask, task_of
from chalicelib.services.produce.check_back import Check
from chalicelib.services.push.run import DispatchReport
from chalicelib.wiring import Deps
from tests.simulation.days.ledger import Deal, Home, Member
from tests.simulation.days.plan import SLOT_MS, TOPICS, Plan
from tests.simulation.days.processes import Seat, SeatClock, Sky
from tests.simulation.mistakes import mistakes
from tests.simulation.virtual import Scheduler
from tests.support.clock import ManualClock, SeededRandom
from tests.support.embedded import embedded_adapters, engine_of
from tests.support.faults import Death
from tests.support.push import Inbox

_DISABLED_AFTER_MS = 5 * DAY_MS
_MOST_CALLS = 200
_MOST_TRIES = 100


Deed = Callable[["Days"], object]


def _checked(checks: list[Check], deps: Deps) -> object:
    return deps.checker.check(checks, lambda: 60.0)


def _delivered(job: DispatchTask, deps: Deps) -> DispatchReport:
    return deps.dispatcher.deliver(job, lambda: 600.0)


class Days:
    """One seed's weeks; `complaints` is what was wrong, `path` what happened."""

    def __init__(self, plan: Plan) -> None:
        Scheduler()  # locks are those of its tasks, here as well
        self.plan = plan
        self.random = random.Random(plan.seed)
        self.clock = ManualClock()
        self.adapters = embedded_adapters(self.clock, SeededRandom(f"days {plan.seed}"))
        self.inbox = Inbox()
        self.sky = Sky(self.clock, self.random)
        if "throttled" in plan.themes:
            self.sky.used = {}
        self.topics = TOPICS
        self.numbers = 0
        self.deals: dict[str, Deal] = {}
        self.served: dict[str, tuple[Home, Member]] = {}  # by the uid of a consumer that is called
        self.moods: dict[str, str] = {}  # likewise
        self.targets: defaultdict[str, set[str]] = defaultdict(set)
        self.asked: Counter[str] = Counter()  # how often, by target
        self.bad_since_ms: dict[str, int] = {}  # likewise by uid, since no call surely succeeded
        self.disabled: set[str] = set()  # likewise
        self.homes: dict[str, Home] = {}
        self.gone: list[Home] = []
        self.held: list[tuple[Member, Topic, ClaimedMessage]] = []
        self.complaints: list[str] = []
        self.path: list[str] = []
        self.injected: Counter[str] = Counter()
        self._cut_short: set[str] = set()  # functions whose last run was missed, or ended before its time
        self._names = 0
        self.is_unanswered = False
        self.used: list[Seat] = []  # since the last delivery
        self.seats = [self.another() for _ in range(3)]
        self.slot = self.clock.at_ms // SLOT_MS

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
        """One request to some process; None where it was refused, or its result is unknown."""
        n = self.random.randrange(len(self.seats))
        if self.random.random() < self.plan.cold / 4:
            self.seats[n] = self.another()
        seat = self.seats[n]
        self.used.append(seat)
        is_deadly = mortal and self.random.random() < self.plan.deaths
        seat.last = seat.calls + self.random.randint(1, 12) if is_deadly else 0
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
        """One request of a client that repeats it until there is an answer."""
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
            questions = [plan.steps or 1 << 30]
            if is_whole:
                questions = [1 << 30]
            elif plan.ragged and rng.random() < 0.5:
                questions = [rng.randint(1, 6)]
                self._cut_short.add(name)

            def has_time(questions: list[int] = questions) -> bool:
                questions[0] -= 1
                return questions[0] >= 0

            if rng.random() < plan.deaths / 2 and not is_whole:
                seat.last = seat.calls + rng.randint(1, 200)
            try:
                report = run(seat.deps, has_time)
                self.note(name, report)
                self._accuse_of_mistakes(report)
            except HeadraceError as error:
                self.note(name, "->", error.code)
            except Death as death:
                self.injected["death"] += 1
                self._cut_short.add(name)
                self.note(name, "->", death)
                self.seats = [self.another() if each is seat else each for each in self.seats]
            seat.last = 0

    def _accuse_of_mistakes(self, report: object) -> None:
        for mistake in mistakes(report):
            self.accuse(f"a visit failed: {mistake}")

    # Time

    def passes(self, ms: int) -> None:
        """Time passes: four times a day rows are looked after, and those whose end has come go."""
        end_ms = self.clock.at_ms + ms
        while (self.slot + 1) * SLOT_MS <= end_ms:
            self.slot += 1
            self.clock.at_ms = max(self.clock.at_ms, self.slot * SLOT_MS + self.random.randrange(600_000))
            self.function("expire", lambda deps, has_time: deps.expirer.run_once(has_time))
            if self.plan.checkpoints:
                self.function("checkpoint", lambda deps, has_time: deps.checkpointer.run_once(has_time))
            self._reap()
            self.function("mover", lambda deps, _: deps.mover.run_once())
        self.clock.at_ms = max(self.clock.at_ms, end_ms)
        self.minute()

    def minute(self) -> None:
        """What runs each minute."""
        self.function("mover", lambda deps, _: deps.mover.run_once())
        self.function("sweep", lambda deps, has_time: deps.sweeper.run_once(has_time))
        self.function("assign", lambda deps, has_time: deps.assigner.run_once(has_time, has_time))
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
                job = task_of(event)
                report = self.ask(f"deliver {job}", partial(_delivered, job))
                self._settled(certain=report is not None and not report.late)
                self._explain_disabled()
        self.inbox.asked.clear()

    def _settled(self, *, certain: bool) -> None:
        """A delivery has ended: what it sent is done, or perhaps."""
        for seat in self.used:
            for uid, member, label in seat.sent:
                if certain:
                    self._succeeds(uid)
                (member.done if certain else member.perhaps).add(label)
            seat.sent.clear()
        self.used.clear()

    def _succeeds(self, uid: str) -> None:
        """A call succeeded. Who is not good may have failed beside it."""
        if self.moods[uid] == "good":
            self.bad_since_ms.pop(uid, None)
        else:
            self.bad_since_ms[uid] = self.clock.at_ms

    def _explain_disabled(self) -> None:
        """A consumer may be disabled only after it has failed for the stated time."""
        for uid, (home, member) in self.served.items():
            try:
                consumers = self.adapters.control.consumers(home.topic, member.group)
            except Unreadable:  # then none of them could be disabled either
                continue
            for consumer in consumers:
                if consumer.uid != uid or consumer.state != "DISABLED" or uid in self.disabled:
                    continue
                self.disabled.add(uid)
                bad_ms = self.clock.at_ms - self.bad_since_ms.get(uid, self.clock.at_ms)
                is_long = bad_ms + 2 * self.plan.skew_ms >= _DISABLED_AFTER_MS
                if "Gone" not in (consumer.why or "") and not is_long:
                    self.accuse(f"{uid} was disabled after {bad_ms} ms: {consumer.why}")

    def outcome(self, mood: str) -> CallResult:
        """How a subscriber of this mood answers."""
        if mood == "mixed":
            mood = self.random.choice(("good", "failing"))
        return {
            "failing": CallResult(Verdict.FAILED, "HTTP 500", 500, is_own_answer=True),
            "silent": CallResult(Verdict.FAILED, "no answer in time"),
            "gone": CallResult(Verdict.GONE, "HTTP 410", 410, is_own_answer=True),
        }.get(mood, CallResult(Verdict.DONE, status=200, is_own_answer=True))

    def _reap(self) -> None:
        if self.plan.reaped_after_ms is None:
            return
        engine_of(self.adapters).drop_expired((self.clock.at_ms - self.plan.reaped_after_ms) // 1000)
        self.injected["rows reaped"] += 1

    def members(self) -> Iterator[tuple[Home, Member]]:
        for home in self.homes.values():
            for member in home.members.values():
                yield home, member
