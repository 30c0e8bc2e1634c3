"""A scene: one topic of its own, acted upon under a fault, then begun afresh and brought to rest."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from chalicelib.domain.append import PutResult
from chalicelib.domain.call_result import CallResult, Verdict
from chalicelib.domain.errors import Unavailable
from chalicelib.domain.limits import LOSSES_BEFORE_RESERVING
from chalicelib.domain.record import DeadLetter
from chalicelib.domain.segment import ShardKey
from chalicelib.domain.times import HOUR_MS
from chalicelib.domain.topic import Consumer, Topic
from chalicelib.services.consume.claimant import ClaimedMessage
from chalicelib.store.control import Control
from chalicelib.store.log import Log
from chalicelib.wiring import Deps
from tests.support.clock import Inline, ManualClock
from tests.support.events import Event, Op, Told, Violation
from tests.support.faults import DEADLY, HARMLESS, Death, Fault, FaultPlan
from tests.support.flows import Client, History, SharedTables, chance, draft
from tests.support.flows_push import Audience, Runner
from tests.support.history import check
from tests.support.push import Inbox, Subscribers
from tests.support.rest import clear_times, drain, final, timers_of

GROUP = "all"
RESTS = (40, HOUR_MS / 1000)
"""Seconds after which every schedule runs once more: when leases are over, and an hour later."""
_SENT_AGAIN = 24  # seconds: three attempts of up to seven, and the pauses between them
_MOST_ROUNDS = 10
_numbers = itertools.count()


class Home:
    """Control data of a scene's own topics: other scenes share its tables."""

    def __init__(self, control: Control, topic: str) -> None:
        self._control = control
        self._prefix = topic.partition(".")[0] + "."

    def __getattr__(self, name: str) -> Any:
        return getattr(self._control, name)

    def topics(self, after: str | None, limit: int, *, consistent: bool = True) -> list[Topic]:
        page = self._control.topics(after or self._prefix, limit, consistent=consistent)
        return [topic for topic in page if topic.name.startswith(self._prefix)]


@dataclass
class Scene:
    """What arrange, act and after of a flow share."""

    tables: SharedTables
    topic: str
    clock: ManualClock
    history: History
    subscribers: Subscribers
    held: list[ClaimedMessage] = field(default_factory=list)
    letters: list[DeadLetter] = field(default_factory=list)
    broadcasts: frozenset[str] = frozenset()
    fan: Consumer | None = None  # of a broadcast, who is to leave
    has_called: bool = False  # are there push consumers here?
    processes: Iterator[int] = field(default_factory=itertools.count)

    def client(self, plan: FaultPlan | None = None) -> Runner:
        """A process that has just started."""
        audience, inbox = Audience(self.subscribers, self.history, self.broadcasts, plan), Inbox()
        deps = self.tables.deps(
            self.clock,
            chance(self.topic, next(self.processes)),
            plan,
            sender=lambda: audience,
            invoker=inbox,
            threads=Inline,
        )
        control = cast(Control, Home(deps.adapters.control, self.topic))
        deps = Deps(replace(deps.adapters, control=control))
        return Runner(deps, self.history, self.topic, audience, inbox)

    def answers(self, name: str, *outcomes: CallResult) -> None:
        """What a subscriber answers, call after call; afterwards it is well."""
        results = list(outcomes)
        self.subscribers.behaviours[name] = lambda _: results.pop(0) if results else CallResult(Verdict.DONE)

    def seconds_pass(self, seconds: float) -> None:
        self.clock.advance(round(seconds * 1000))


Act = Callable[[Scene, Runner], object]


def _nothing(scene: Scene, client: Runner) -> None:
    return


@dataclass(frozen=True, slots=True)
class Flow:
    """One use of Headrace whose every storage call is to fail in turn."""

    act: Act
    arrange: Act = _nothing
    after: Act = _nothing
    """What a client that heard nothing, or a later one, does next."""
    topic: Mapping[str, Any] = field(default_factory=lambda: {"shards": 1})
    group: Mapping[str, Any] | None = field(default_factory=dict)
    """Settings of the group that reads the topic from its beginning; None: there is none."""

    raced: bool = False
    """Does a rival come between? Then a no is a good answer, and under a fault sometimes nobody can tell."""
    also: Callable[[Scene, Runner], list[str]] = lambda scene, client: []
    """What is wrong at rest that no history tells."""


@dataclass
class Result:
    """How one run of a flow under one fault ended."""

    plan: FaultPlan
    error: BaseException | None
    answers: list[Event]
    violations: list[Violation]
    raced: bool
    wrong: list[str]

    @property
    def unwell(self) -> bool:
        """Did the process report a problem?"""
        return self.error is not None or any(e.told is not Told.OK for e in self.answers)


def begin(tables: SharedTables, flow: Flow, name: str = "") -> tuple[Scene, Runner]:
    """A scene with its topic and group, and the healthy process that arranged it. Its ids come from its name."""
    clock = ManualClock()
    topic = re.sub(r"\W", "-", name or f"t{next(_numbers)}") + ".z"
    scene = Scene(tables, topic, clock, History(clock), Subscribers(clock))
    client = scene.client()
    client.deps.admin.put_topic(scene.topic, dict(flow.topic))
    if flow.group is not None:
        client.put_group(GROUP, **{"begin": "earliest", **flow.group})
    flow.arrange(scene, client)
    return scene, client


def play(
    tables: SharedTables,
    flow: Flow,
    fault: Fault | None = None,
    at: int = 0,
    name: str = "",
    *,
    rests: Sequence[float] = RESTS,
) -> Result:
    """Run a flow with a fault at its `at`-th call, start afresh, let an hour pass, judge. With a name, which serves
    once, all ids are the same in every run."""
    scene, _ = begin(tables, flow, name)
    plan = FaultPlan(fault, at, meanwhile=partial(go_on, scene))
    before = len(scene.history.events)
    error: BaseException | None = None
    try:
        flow.act(scene, scene.client(plan))
    except (Death, Exception) as exception:  # noqa: BLE001 - what may be raised is judged below
        error = exception
    answers = scene.history.events[before:]
    client = scene.client()
    try:
        come_to_rest(scene, flow, rests)
        violations = check(scene.history.events, final(client))
        return Result(plan, error, answers, violations, flow.raced, flow.also(scene, client))
    finally:
        clear_times(client.deps)


def go_on(scene: Scene) -> None:
    """What happens before the SDK sends a request for the last time: what was due is moved."""
    scene.seconds_pass(_SENT_AGAIN)
    scene.client().run_mover()


def come_to_rest(scene: Scene, flow: Flow, rests: Sequence[float]) -> None:
    """Start afresh, with healthy subscribers; every schedule runs at once, and after each of these times."""
    client = scene.client()
    scene.subscribers.behaviours.clear()
    flow.after(scene, client)
    run_schedules(scene, client, client.move)
    for seconds in rests:
        scene.seconds_pass(seconds)
        run_schedules(scene, client, client.run_mover)


def run_schedules(scene: Scene, client: Runner, mover: Callable[[], object]) -> None:
    """Movers, sweeps and who pulls, until there is nothing to do at this time. What has no end is judged as it is."""
    for _ in range(_MOST_ROUNDS):
        timers, calls = timers_of(client.deps), len(scene.subscribers.calls)
        if timers:
            mover()
        if scene.has_called:
            client.sweep()
        count = drain(client, with_called=scene.has_called)
        quiet = not count and len(scene.subscribers.calls) == calls
        if quiet and (not timers or timers_of(client.deps) == timers):
            return


def complaints(outcome: Result, fault: Fault | None) -> list[str]:
    """What is wrong with an outcome."""
    complaints_found = [*(f"{v.kind}: {v.about}" for v in outcome.violations), *outcome.wrong]
    if not outcome.plan.fired or fault in HARMLESS:
        if outcome.unwell and not (outcome.raced and outcome.error is None):
            complaints_found.append(
                f"should have been as if nothing had happened: {outcome.error!r} {outcome.answers}"
            )
    elif fault in DEADLY:
        if not isinstance(outcome.error, Death):
            complaints_found.append(f"death was swallowed: {outcome.error!r}")
    elif outcome.error is not None and not isinstance(outcome.error, Unavailable):
        complaints_found.append(f"raised {outcome.error!r}")
    elif fault is Fault.FAIL_ALWAYS and not outcome.unwell and not _could_answer(outcome):
        complaints_found.append("answered OK though the store did not answer")
    return complaints_found


def _could_answer(outcome: Result) -> bool:
    """Without traces every call can answer; without wake-ups, every call that has written what was asked for. Granted
    messages are returned even if the store refuses to look for more, or to claim more; but each grant is of a write
    that the store answered. After a transaction, whose answer does not include the cursor, it need not be looked up."""
    leases = {answer.token for answer in outcome.answers if answer.op is Op.CLAIM}
    claims_only = all(answer.op is Op.CLAIM for answer in outcome.answers)
    plan = outcome.plan
    notes = [note for note in plan.spoilt if not note.is_trace]
    answered = plan.notes[: plan.at - 1]
    if answered and answered[-1].is_of_cursor and answered[-1].operation == "TransactWriteItems":
        notes = [note for note in notes if not note.reads_cursor]
    if all(note.is_of_waking for note in notes):
        return not notes or any(note.is_write and not note.is_of_waking for note in answered)
    return 0 < len(leases) <= sum(note.is_of_cursor for note in answered) and all(
        not note.is_write or (claims_only and note.is_of_cursor) for note in notes
    )


def produce(*names: str, each: bool = False, delay_seconds: int | None = None, **settings: Any) -> Act:
    """Produce messages with these labels: as one batch, or each by itself."""

    def act(scene: Scene, client: Runner) -> object:
        due_ms = None if delay_seconds is None else scene.clock.now_ms() + delay_seconds * 1000
        drafts = [draft(name, due_ms=due_ms, **settings) for name in names]
        return [client.produce(d) for d in drafts] if each else client.produce(*drafts)

    return act


def claim(most: int = 10, consumer: str | None = None) -> Act:
    """Receive and hold what was received."""

    def act(scene: Scene, client: Runner) -> object:
        scene.held = client.receive(GROUP, most, consumer)
        return scene.held

    return act


def steps(*acts: Act) -> Act:
    """One after the other."""

    def act(scene: Scene, client: Runner) -> object:
        return [step(scene, client) for step in acts]

    return act


def subscribe(
    name: str = "one", *outcomes: CallResult, group: str = GROUP, kind: str = "url", target: str = ""
) -> Act:
    """Register a consumer that is called; what it answers first, while all is not well."""

    def act(scene: Scene, client: Runner) -> None:
        scene.has_called = True
        if outcomes:
            scene.answers(target or name, *outcomes)
        client.subscribe(group, name, kind, target)

    return act


def answering(*outcomes: CallResult, name: str = "one") -> Act:
    """What a subscriber answers to the next calls."""
    return lambda scene, client: scene.answers(name, *outcomes)


def passing(seconds: float) -> Act:
    return lambda scene, client: scene.seconds_pass(seconds)


def ack_held(part: slice = slice(None)) -> Act:
    return lambda scene, client: client.ack(GROUP, scene.held[part])


class Racing:
    """A log on which a rival is always faster, for a while; afterwards the writer may die before its counter."""

    def __init__(self, log: Log, rival: Client, *, is_deadly: bool) -> None:
        self._log = log
        self._rival = rival
        self._left = LOSSES_BEFORE_RESERVING
        self._dies = is_deadly

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def put(self, *args: Any) -> PutResult:
        if self._left:
            self._left -= 1
            self._rival.produce(draft(f"rival{self._left}"))
        return self._log.put(*args)

    def begin_reserving(self, shard: ShardKey, offset: int) -> None:
        if self._dies:
            raise Death("before the counter")
        self._log.begin_reserving(shard, offset)


class Slow:
    """A log on which something happens between the moment a place is chosen and the write."""

    def __init__(self, log: Log, meanwhile: Callable[[], object]) -> None:
        self._log = log
        self._meanwhile = [meanwhile]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def put(self, *args: Any) -> PutResult:
        while self._meanwhile:
            self._meanwhile.pop()()
        return self._log.put(*args)


def slowly(client: Runner, meanwhile: Callable[[], object]) -> None:
    """Let something happen in the middle of the client's next append."""
    _append_with(client, Slow(client.deps.adapters.log, meanwhile))


def losing_races(scene: Scene, client: Runner, *, is_deadly: bool = False) -> None:
    """Give the client's next message so many lost races that it turns the shard to reserved offsets."""
    _append_with(client, Racing(client.deps.adapters.log, scene.client(), is_deadly=is_deadly))


def _append_with(client: Runner, log: object) -> None:
    """Let a client append to a log of the test's own."""
    a = client.deps.adapters
    client.deps.producer = Deps(replace(a, log=cast(Log, log))).producer


def reserve_shard(scene: Scene, client: Runner) -> None:
    losing_races(scene, client)
    client.produce(draft("turned"))


def turn_halfway(scene: Scene, client: Runner) -> None:
    """The writer that turned the shard died before it could set the counter."""
    losing_races(scene, client, is_deadly=True)
    with contextlib.suppress(Death):
        client.produce(draft("turned"))


def leave_hole(scene: Scene, client: Runner, count: int = 2) -> None:
    """A writer reserved offsets and died; another wrote behind it."""
    reserve_shard(scene, client)
    client = scene.client()
    client.deps.adapters.log.reserve(client.topic.shard_key(0), count)
    client.produce(draft("behind"))
