"""One seed's world: a store, processes over it, what starts them, and everybody who uses them."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from chalicelib.adapters import Nobody
from chalicelib.domain.append import Stored
from chalicelib.domain.cursor import Cursor
from chalicelib.domain.cursor_write import WriteRefused
from chalicelib.domain.errors import HeadraceError
from chalicelib.domain.segment import ShardKey
from chalicelib.domain.times import SECOND_MS
from chalicelib.services.consume.claimant import ClaimedMessage
from chalicelib.services.core.wake import news_of, task_of
from chalicelib.services.produce.check_back import Check
from chalicelib.wiring import Deps
from tests.simulation.clients import SimClient
from tests.simulation.fleet import Fleet
from tests.simulation.laws import Flow, broken
from tests.simulation.mistakes import mistakes
from tests.simulation.plan import GroupPlan, Plan
from tests.simulation.processes import Clock, Faults, Past, Process
from tests.simulation.promises import Promises
from tests.simulation.pushing import Bound, Subscribers, observed
from tests.simulation.virtual import Endless, Scheduler, Task
from tests.simulation.weather import Weather
from tests.support.clock import START_MS, SeededRandom
from tests.support.cursor_bytes import bytes_of
from tests.support.damage import Damage
from tests.support.embedded import embedded_adapters
from tests.support.events import Event
from tests.support.faults import Death
from tests.support.flows import reader_name

T = TypeVar("T")
P = ParamSpec("P")
_RETRIES = 2  # Lambda's, of an asynchronous invocation that failed
_SCHEDULE_S = 60
_REQUEST_S = 29  # an HTTP gateway waits no longer
_MARGIN_S = 5  # as functions.py has it


class World:
    """`events` is what clients saw, `complaints` what was found wrong at once; `path` is every port call."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.seed = plan.seed
        self.random = random.Random(plan.seed)
        self.scheduler = Scheduler()
        clock = Clock(self.scheduler, 0)
        self.adapters = embedded_adapters(clock, SeededRandom(f"store {plan.seed}"))
        self.damage = Damage(self)
        self.past = Past(self.scheduler)
        self.subscribers = Subscribers(self)
        self.wakes = Wakes(self)
        self.events: list[Event] = []
        self.complaints: list[str] = []
        self.path: list[tuple[float, str, str, Any, str]] = []
        self._stamps = itertools.count()
        self.promises = Promises(self.adapters.transactions, self.accuse, self.stamp)
        self.weather = Weather(self, plan.skies, plan.sky_every_s)
        self.injected: Counter[str] = Counter()  # faults, by kind
        self.largest_cursor_bytes = 0
        self.calm = Faults()
        self.over = False
        self.streams = True
        self.readers: dict[tuple[str, str], str] = {}  # by uids of the group and of a broadcast's consumer
        self.groups: dict[str, GroupPlan] = {g.name: g for g in plan.groups}
        cursors_of = self.adapters.cursors.of_owner
        self.flows = {g.name: Flow(g.settings, cursors_of) for g in plan.groups}
        self.bounds = {
            g.name: Bound(self, g.settings["max_in_flight"])
            for g in plan.groups
            if "max_in_flight" in g.settings
        }
        self.alive = True  # what clients live with
        self.fleet = Fleet(self)

    # What processes tell

    def stamp(self) -> int:
        return next(self._stamps)

    def trace(self, process: Process, method: str, args: Any, fault: str) -> None:
        plain = tuple(map(_plain, args)) if isinstance(args, tuple) else args
        self.path.append((self.scheduler.now, process.name, method, plain, fault))
        if fault not in ("", "good", "at first", "honest"):
            self.injected[fault] += 1
        if len(self.path) > self.plan.most_calls:
            raise Endless(f"{self.plan.most_calls} calls, and no end to it")

    def accuse(self, complaint: str) -> None:
        self.complaints.append(complaint)

    def applied(self, process: Process, method: str, args: tuple[Any, ...], answer: Any) -> None:
        """A port call has been made: the stream sees new rows, stale reads remember what was."""
        if method == "cursors.write" and not isinstance(answer, WriteRefused):
            before = self.past.cursor(args[0], 0) or Cursor()
            item_bytes = bytes_of(args[0], answer)
            self.largest_cursor_bytes = max(self.largest_cursor_bytes, item_bytes)
            process.wrote(args[1])
            for law in broken(before, answer, args[1], process.clock.latest_ms, item_bytes):
                self.accuse(f"{process.name} wrote {args[0].shard}: {law}")
        self.past.note(method, args, answer)
        if method == "control.put_group":
            self.readers[args[1].uid, ""] = args[1].name
        if method == "control.put_consumer":
            self.readers[args[1].uid, args[2].uid] = self.reader_of(args[1].name, args[2].name)
        if method == "log.put" and isinstance(answer, Stored):
            self.promises.stored(args[1], args[4] if len(args) > 4 else (), process.clock.latest_ms)
            if self.streams:
                self.wakes.appended(args[0], args[1].first)
        if method == "transactions.prepare" and not answer:
            self.promises.prepared(args[0])

    def gets(self, group: str, messages: Sequence[ClaimedMessage]) -> None:
        """A consumer of the group was given these."""
        for law in self.flows[group].gets(messages, self.scheduler.now) if group in self.flows else ():
            self.accuse(f"{group}: {law}")

    def died(self, process: Process) -> None:
        process.notes.ended()
        self.injected["death"] += not self.over
        if not self.over:
            self.fleet.died(process)

    def reader_of(self, group: str, consumer: str | None) -> str:
        return reader_name(group, consumer if self.groups[group].mode == "broadcast" else None)

    def reader_by(self, group_uid: str, consumer_uid: str) -> str:
        return self.readers[group_uid, consumer_uid]

    # Processes

    def begin(self, role: str, faults: Faults | None = None, skew_ms: int | None = None) -> Process:
        """A process outside the fleet."""
        return self.fleet.begin(role, faults, skew_ms)

    observe = staticmethod(observed)

    def some(self, role: str) -> Process:
        return self.fleet.some(role)

    def ask(
        self, request: Callable[Concatenate[SimClient, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T | None:
        """One request of a client to some process; None where it was refused, or no answer came."""
        try:
            with self.fleet.at_work("api", _REQUEST_S) as process:
                return request(SimClient(process), *args, **kwargs)
        except HeadraceError:
            return None
        except Death:
            if not self.alive:
                raise
            return None

    def start(
        self,
        role: str,
        work: Callable[[Deps, Task], object],
        after_ms: float = 0,
        tries: int = 0,
        seconds: int | None = None,
    ) -> None:
        """Start a function, by itself, in some process; it has so many seconds."""
        limit = seconds or self.plan.function_seconds

        def function() -> None:
            task = self.scheduler.current()
            assert task
            try:
                with self.fleet.at_work(role, limit) as process:
                    task.until = self.scheduler.now + limit * SECOND_MS
                    self._accuse_of_mistakes(work(process.deps, task))
            except (HeadraceError, Death):
                if tries and self.alive:
                    again_ms = self.random.uniform(100, 60_000)
                    self.start(role, work, again_ms, tries - 1, seconds)

        self.scheduler.spawn(function, self, after_ms)

    def _accuse_of_mistakes(self, report: object) -> None:
        for mistake in mistakes(report):
            self.accuse(f"a visit failed: {mistake}")

    def seconds_left(self, task: Task) -> float:
        return (task.until - self.scheduler.now) / 1000

    def pause(self, seconds: float) -> None:
        self.scheduler.wait(seconds * 1000)

    @property
    def seconds(self) -> float:
        """How long it has lasted."""
        return (self.scheduler.now - START_MS) / 1000

    # The course of events

    def run(self) -> None:
        """Trouble, for as long as planned. Then all actors leave."""
        self.scheduler.run(self.scheduler.now + self.plan.seconds * SECOND_MS)
        self.over, self.alive = True, False
        for process in self.fleet.everybody():
            process.die()
        self.scheduler.kill_all_of(self)
        self.scheduler.run(self.scheduler.now)
        assert not self.scheduler.tasks

    def schedule(self) -> None:
        """What EventBridge starts each minute: late by some jitter, at times not at all, at times twice."""
        for role, work in SCHEDULES:
            if work is _sweep and not self.plan.sweeps:
                continue
            self.scheduler.spawn(
                self._repeating(role, partial(work, self)),
                self,
                self.random.uniform(0, _SCHEDULE_S * SECOND_MS / 4),
            )

    def _repeating(self, role: str, work: Callable[[Deps, Task], object]) -> Callable[[], None]:
        plan, rng = self.plan, self.random

        def forever() -> None:
            while True:
                draw = rng.random() if plan.irregular else 0.5
                times = 0 if draw < plan.irregular else 2 if draw > 1 - plan.irregular else 1
                self.injected["irregular tick"] += times != 1
                for _ in range(times):
                    late_ms = rng.uniform(0, plan.jitter_ms)
                    self.start(role, work, late_ms, _RETRIES, plan.schedule_seconds)
                self.pause(_SCHEDULE_S)

        return forever


def _has_time(world: World, task: Task) -> Callable[[], bool]:
    return lambda: world.seconds_left(task) > _MARGIN_S


def _sweep(world: World, deps: Deps, task: Task) -> object:
    return deps.sweeper.run_once(_has_time(world, task))


def _assign(world: World, deps: Deps, task: Task) -> object:
    has_time = _has_time(world, task)
    return deps.assigner.run_once(has_time, has_time)


SCHEDULES: Sequence[tuple[str, Callable[[World, Deps, Task], object]]] = (
    ("mover", lambda world, deps, task: deps.mover.tick(_has_time(world, task))),
    ("keeper", _sweep),
    ("keeper", _assign),
    ("keeper", lambda world, deps, task: deps.checkpointer.run_once(_has_time(world, task))),
    ("keeper", lambda world, deps, task: deps.expirer.run_once(_has_time(world, task))),
)
"""The functions that run by the clock, and in which kind of process."""


class Wakes(Nobody):
    """ports.Invoker and the log's stream: both deliver late, not in order, twice, or never."""

    def __init__(self, world: World) -> None:
        self._world = world

    def invoke(self, function: str, event: Mapping[str, Any]) -> None:
        """At least once, says Lambda; we do not count on it."""
        for delay_ms in self._times(5, 400):
            begin = {"deliver": self._deliver, "check": self._check}[function]
            begin(event, delay_ms)

    def wake_mover(self, hint: Mapping[str, Any], delay_seconds: int) -> None:
        for delay_ms in self._times(5, 400):
            self._world.start(
                "mover",
                lambda deps, task: deps.mover.run_once(
                    _has_time(self._world, task), hint.get("fragments"), hint["until_ms"]
                ),
                1_000 * delay_seconds + delay_ms,
                _RETRIES,
            )

    def _deliver(self, event: Mapping[str, Any], delay_ms: float) -> None:
        job, news, seconds_left = task_of(event), news_of(event), self._world.seconds_left
        self._world.start(
            "worker",
            lambda deps, task: deps.dispatcher.deliver(job, lambda: seconds_left(task), news),
            delay_ms,
            _RETRIES,
        )

    def _check(self, event: Mapping[str, Any], delay_ms: float) -> None:
        checks, seconds_left = [Check(*each) for each in event["checks"]], self._world.seconds_left
        self._world.start(
            "worker",
            lambda deps, task: deps.checker.check(checks, lambda: seconds_left(task)),
            delay_ms,
            _RETRIES,
        )

    def appended(self, shard: ShardKey, offset: int) -> None:
        """The stream shows a new row."""
        rows = {str(shard): offset}
        for delay_ms in self._times(20, 2_000):
            self._world.start("router", lambda deps, _: deps.waker.route(rows), delay_ms, _RETRIES)

    def _times(self, least_ms: float, most_ms: float) -> list[float]:
        draw, loss = self._world.random.random(), self._world.plan.stream_loss
        times = 0 if draw < loss else 2 if draw > 0.9 else 1
        return [self._world.random.uniform(least_ms, most_ms) for _ in range(times)]


def _plain(argument: Any) -> Any:
    """An argument as it can be compared with that of another run."""
    return getattr(argument, "__name__", "a function") if callable(argument) else argument
