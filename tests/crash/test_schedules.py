"""Schedules under faults: each storage call of each change and firing meets each fault; afterwards each time has had
one message, and what was stopped has none."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache

import pytest

from chalicelib.domain.errors import HeadraceError, NotFound, Unavailable
from chalicelib.domain.message import Firing
from chalicelib.domain.timer import Missed, Overlap, Schedule
from chalicelib.domain.times import MINUTE_MS
from chalicelib.wiring import Deps
from tests.crash.points import FAULTS, Played
from tests.support import factories as make
from tests.support.clock import START_MS, Inline, ManualClock
from tests.support.faults import DEADLY, HARMLESS, Death, Fault, FaultPlan
from tests.support.flows import SharedTables, chance
from tests.support.push import Inbox

MINUTES = 4
_numbers = itertools.count()
_played = Played(of_deaths=lambda flow: flow)


@dataclass
class World:
    """One topic with one schedule of its name, which fires each minute."""

    tables: SharedTables
    name: str = field(default_factory=lambda: f"sch{next(_numbers)}.z")
    clock: ManualClock = field(default_factory=ManualClock)

    def process(self, plan: FaultPlan | None = None) -> Deps:
        """A process that has just started."""
        seed = chance(self.name, next(_numbers))
        return self.tables.deps(self.clock, seed, plan, invoker=Inbox(), threads=Inline)

    @property
    def minute(self) -> int:
        return (self.clock.now_ms() - START_MS) // MINUTE_MS

    def put(self, deps: Deps, **settings: object) -> None:
        wanted = make.schedule(self.name, topic=self.name, created_ms=START_MS, missed=Missed.ALL)
        deps.schedules.put(replace(wanted, **settings), anywhere)  # type: ignore[arg-type]

    def schedule(self) -> Schedule | None:
        return self.process().adapters.control.schedule(self.name)

    def firings(self) -> list[Firing]:
        deps = self.process()
        rows = deps.adapters.log.read(deps.catalog.topic(self.name).shard_key(0), 0, 100, consistent=True)
        firings = [draft.firing for row in rows for draft in row.drafts]
        return [firing for firing in firings if firing]


Step = Callable[[World, Deps], object]


def anywhere(topic: str) -> None:
    """Every topic will do."""


def putting(**settings: object) -> Step:
    return lambda world, deps: world.put(deps, **settings)


def after(minutes: float, step: Step | None = None, **settings: object) -> Step:
    """Put a schedule; go on at this time."""

    def act(world: World, deps: Deps) -> None:
        world.put(deps, **settings)
        world.clock.advance(round(minutes * MINUTE_MS))
        if step:
            step(world, deps)

    return act


def move(world: World, deps: Deps) -> None:
    deps.mover.run_once()


def use_up(world: World, deps: Deps) -> None:
    topic, _ = deps.admin.put_topic(world.name, {"rate_limit": 1})
    assert deps.rate_limits.admit_firings({topic.uid: 1}, 9) == 2


def pause(paused: bool = True) -> Step:
    return lambda world, deps: deps.schedules.set_paused(world.name, paused, anywhere)


def run(world: World, deps: Deps) -> None:
    deps.schedules.run(world.name, "tok1", anywhere)


def delete(world: World, deps: Deps) -> None:
    with suppress(NotFound):
        deps.schedules.delete(world.name, anywhere)


EDITED = {"draft": make.draft("edited")}


@dataclass(frozen=True)
class Flow:
    """A step under faults, done again without an answer. `times`: the minutes that then have a message, one each."""

    act: Step
    arrange: Step = lambda world, deps: None
    times: tuple[int, ...] = tuple(range(1, MINUTES + 1))
    calls: int = 0
    again: bool = True


FLOWS: Mapping[str, Flow] = {
    "put": Flow(putting(), calls=4),
    "put while it is due": Flow(putting(**EDITED), after(1), calls=7),
    "put other times": Flow(putting(every_seconds=120), after(0.5), times=(2, 4), calls=5),
    "fire the next one": Flow(move, after(1, after(1, move)), calls=13),
    "fire but for the missed": Flow(move, after(3.5, missed=Missed.SKIP), times=(2, 3, 4), calls=12),
    "hold the next one": Flow(
        move, after(1, after(1, move, overlap=Overlap.SKIP), overlap=Overlap.SKIP), times=(1,), calls=14
    ),
    "wait for a rate": Flow(move, after(1, use_up), calls=11),
    "run": Flow(run, after(0.5), again=False, calls=7),
    "pause": Flow(pause(), after(0.5), times=(), calls=3),
    "resume": Flow(pause(False), after(0.5, paused=True), calls=5),
    "delete": Flow(delete, after(0.5), times=(), calls=4),
}


def play(
    tables: SharedTables, flow: Flow, fault: Fault | None = None, at: int = 0
) -> tuple[FaultPlan, list[str]]:
    """Run a flow with a fault at its `at`-th call, go on with healthy processes, judge."""
    world = World(tables)
    deps = world.process()
    topic, _ = deps.admin.put_topic(world.name, {"shards": 1})
    deps.admin.put_group(topic, "g", {"begin": "earliest"})
    flow.arrange(world, deps)
    plan = FaultPlan(fault, at, meanwhile=lambda: move(world, world.process()))
    wrong: list[str] = []
    try:
        flow.act(world, world.process(plan))
    except (Death, HeadraceError) as error:
        if not isinstance(error, Death | Unavailable) or not plan.fired or fault in HARMLESS - DEADLY:
            wrong.append(f"raised {error!r}")
        if flow.again:
            flow.act(world, world.process())
    deps = world.process()
    deps.schedules.restore()
    while True:
        for _ in range(2):
            move(world, deps)
        if world.minute == MINUTES:
            break
        world.clock.advance(MINUTE_MS - (world.clock.now_ms() - START_MS) % MINUTE_MS)
    firings = world.firings()
    times = Counter((firing.at_ms - START_MS) / MINUTE_MS for firing in firings)
    scheduled = {minute: count for minute, count in times.items() if minute.is_integer()}
    if scheduled != dict.fromkeys(flow.times, 1):
        wrong.append(f"sent at {dict(times)}")
    delete(world, world.process())
    return plan, wrong


@cache
def _healthy(tables: SharedTables, name: str) -> tuple[FaultPlan, list[str]]:
    return play(tables, FLOWS[name])


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("name", FLOWS)
def test_no_fault_at_any_call_doubles_or_loses_a_time(tables: SharedTables, name: str, fault: Fault) -> None:
    calls = _healthy(tables, name)[0].notes
    failures: list[str] = []
    for at in _played.points(name, fault, calls):
        wrong = play(tables, FLOWS[name], fault, at)[1]
        failures += [f"call {at} ({calls[at - 1].operation}): {each}" for each in wrong]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("name", FLOWS)
def test_a_step_of_a_schedule_makes_as_many_storage_calls_as_it_is_known_to(
    tables: SharedTables, name: str
) -> None:
    plan, wrong = _healthy(tables, name)
    assert wrong == []
    assert len(plan.calls) == FLOWS[name].calls, plan.calls
