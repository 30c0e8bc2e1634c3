"""A scene: one topic of its own, acted upon under a fault, then begun afresh and brought to rest."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from chalicelib.domain.errors import Unavailable
from chalicelib.domain.limits import LOSSES_BEFORE_RESERVING
from chalicelib.domain.segment import ShardKey
from chalicelib.ports import Log, PutResult
from chalicelib.services.claim import Delivery
from chalicelib.wiring import Deps
from tests.support.clock import HOUR_MS, ManualClock
from tests.support.events import Event, Told, Violation
from tests.support.faults import DEADLY, HARMLESS, Death, Fault, FaultPlan
from tests.support.flows import Client, History, Stage, chance, draft
from tests.support.history import check
from tests.support.rest import drain, final

GROUP = "all"
_numbers = itertools.count()


@dataclass
class Scene:
    """What arrange, act and after of a flow share."""

    stage: Stage
    topic: str
    clock: ManualClock
    history: History
    held: list[Delivery] = field(default_factory=list)

    def client(self, plan: FaultPlan | None = None) -> Client:
        """A process that has just started."""
        deps = self.stage.deps(self.clock, chance(self.topic, next(_numbers)), plan)
        return Client(deps, self.history, self.topic)

    def seconds_pass(self, seconds: float) -> None:
        self.clock.advance(round(seconds * 1000))


@dataclass(frozen=True, slots=True)
class Flow:
    """One use of Headrace whose every storage call is to fail in turn."""

    act: Callable[[Scene, Client], object]
    arrange: Callable[[Scene, Client], object] = lambda scene, client: None
    after: Callable[[Scene, Client], object] = lambda scene, client: None
    """What a client that heard nothing, or a later one, does next."""
    topic: Mapping[str, Any] = field(default_factory=lambda: {"shards": 1})
    group: Mapping[str, Any] | None = field(default_factory=dict)
    """Settings of the group that reads the topic from its beginning; None: there is none."""

    raced: bool = False
    """Does a rival come between? Then a no is a good answer, and under a fault sometimes nobody can tell."""


@dataclass
class Outcome:
    """How one run of a flow under one fault ended."""

    plan: FaultPlan
    error: BaseException | None
    answers: list[Event]
    violations: list[Violation]
    raced: bool

    @property
    def unwell(self) -> bool:
        """Did anybody notice that something was wrong?"""
        return self.error is not None or any(e.told is not Told.OK for e in self.answers)


def begin(stage: Stage, flow: Flow) -> tuple[Scene, Client]:
    """A scene with its topic and group, and the healthy process that arranged it."""
    clock = ManualClock()
    scene = Scene(stage, f"t{next(_numbers)}", clock, History(clock))
    client = scene.client()
    client.deps.admin.put_topic(scene.topic, dict(flow.topic))
    if flow.group is not None:
        client.put_group(GROUP, **{"begin": "earliest", **flow.group})
    flow.arrange(scene, client)
    return scene, client


def play(stage: Stage, flow: Flow, fault: Fault | None = None, at: int = 0) -> Outcome:
    """Run a flow with a fault at its `at`-th call, start afresh, drain, judge."""
    scene, _ = begin(stage, flow)
    plan = FaultPlan(fault, at)
    before = len(scene.history.events)
    error: BaseException | None = None
    try:
        flow.act(scene, scene.client(plan))
    except (Death, Exception) as raised:  # noqa: BLE001 - what may be raised is judged below
        error = raised
    answers = scene.history.events[before:]
    come_to_rest(scene, flow)
    violations = check(scene.history.events, final(scene.client()))
    return Outcome(plan, error, answers, violations, flow.raced)


def come_to_rest(scene: Scene, flow: Flow) -> None:
    """Start afresh; impatient consumers at once, patient ones an hour later."""
    client = scene.client()
    flow.after(scene, client)
    drain(client)
    scene.seconds_pass(HOUR_MS / 1000)
    drain(client)


def complaints(outcome: Outcome, fault: Fault | None) -> list[str]:
    """What is wrong with an outcome."""
    found = [f"{v.kind}: {v.about}" for v in outcome.violations]
    if not outcome.plan.fired or fault in HARMLESS:
        if outcome.unwell and not (outcome.raced and outcome.error is None):
            found.append(f"should have been as if nothing had happened: {outcome.error!r} {outcome.answers}")
    elif fault in DEADLY:
        if not isinstance(outcome.error, Death):
            found.append(f"death was swallowed: {outcome.error!r}")
    elif outcome.error is not None and not isinstance(outcome.error, Unavailable):
        found.append(f"raised {outcome.error!r}")
    elif fault is Fault.FAIL_ALWAYS and not outcome.unwell:
        found.append("answered OK though the store did not answer")
    return found


def produce(*names: str, each: bool = False, **settings: Any) -> Callable[[Scene, Client], object]:
    """Produce messages with these labels: as one batch, or each by itself."""

    def act(scene: Scene, client: Client) -> object:
        drafts = [draft(name, **settings) for name in names]
        return [client.produce(d) for d in drafts] if each else client.produce(*drafts)

    return act


def claim(most: int = 10, consumer: str | None = None) -> Callable[[Scene, Client], object]:
    """Receive and hold what was received."""

    def act(scene: Scene, client: Client) -> object:
        scene.held = client.receive(GROUP, most, consumer)
        return scene.held

    return act


def steps(*acts: Callable[[Scene, Client], object]) -> Callable[[Scene, Client], object]:
    """One after the other."""

    def act(scene: Scene, client: Client) -> object:
        return [step(scene, client) for step in acts]

    return act


def passing(seconds: float) -> Callable[[Scene, Client], object]:
    return lambda scene, client: scene.seconds_pass(seconds)


def ack_held(part: slice = slice(None)) -> Callable[[Scene, Client], object]:
    return lambda scene, client: client.ack(GROUP, scene.held[part])


class Racing:
    """A log on which a rival is always faster, for a while; afterwards the writer may die before its counter."""

    def __init__(self, log: Log, rival: Client, *, dies: bool) -> None:
        self._log = log
        self._rival = rival
        self._left = LOSSES_BEFORE_RESERVING
        self._dies = dies

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def put(self, *asked: Any) -> PutResult:
        if self._left:
            self._left -= 1
            self._rival.produce(draft(f"rival{self._left}"))
        return self._log.put(*asked)

    def begin_reserving(self, shard: ShardKey, following: int) -> None:
        if self._dies:
            raise Death("before the counter")
        self._log.begin_reserving(shard, following)


class Slow:
    """A log on which something happens between the moment a place is chosen and the write."""

    def __init__(self, log: Log, meanwhile: Callable[[], object]) -> None:
        self._log = log
        self._meanwhile = [meanwhile]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def put(self, *asked: Any) -> PutResult:
        while self._meanwhile:
            self._meanwhile.pop()()
        return self._log.put(*asked)


def slowly(client: Client, meanwhile: Callable[[], object]) -> None:
    """Let something happen in the middle of the client's next append."""
    a = client.deps.adapters
    client.deps.producer = Deps(replace(a, log=cast(Log, Slow(a.log, meanwhile)))).producer


def losing_races(scene: Scene, client: Client, *, dies: bool = False) -> None:
    """Give the client's next message so many lost races that it turns the shard to reserved offsets."""
    a = client.deps.adapters
    log = cast(Log, Racing(a.log, scene.client(), dies=dies))
    client.deps.producer = Deps(replace(a, log=log)).producer


def reserve_shard(scene: Scene, client: Client) -> None:
    losing_races(scene, client)
    client.produce(draft("turned"))


def turn_halfway(scene: Scene, client: Client) -> None:
    """The writer that turned the shard died before it could set the counter."""
    losing_races(scene, client, dies=True)
    with contextlib.suppress(Death):
        client.produce(draft("turned"))


def leave_hole(scene: Scene, client: Client, count: int = 2) -> None:
    """A writer reserved offsets and died; another wrote behind it."""
    reserve_shard(scene, client)
    client = scene.client()
    client.deps.adapters.log.reserve(client.topic.shard_key(0), count)
    client.produce(draft("behind"))
