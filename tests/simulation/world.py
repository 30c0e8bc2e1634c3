"""One seed's world: a store, processes over it, what starts them, and everybody who uses them."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

from chalicelib.adapters import memory_adapters
from chalicelib.domain.cursor import Cursor
from chalicelib.domain.errors import HeadraceError
from chalicelib.domain.segment import ShardKey
from chalicelib.ports import Refused, Stored
from chalicelib.services.checks import Check
from chalicelib.services.wake import job_of
from chalicelib.wiring import Deps
from tests.simulation.clients import SimClient
from tests.simulation.laws import broken
from tests.simulation.plan import GroupPlan, Plan
from tests.simulation.processes import Clock, Faults, Past, Process
from tests.simulation.promises import Promises
from tests.simulation.pushing import Subscribers, observed
from tests.simulation.virtual import Endless, Scheduler, Task
from tests.support.clock import SECOND_MS, ManualClock, SeededChance
from tests.support.events import Event
from tests.support.faults import Death
from tests.support.flows import reader_name

T = TypeVar("T")
P = ParamSpec("P")
PROCESSES = {"api": 2, "worker": 2, "mover": 2, "keeper": 1, "router": 1}
_MOST_CALLS = 50_000
_RETRIES = 2  # Lambda's, of an asynchronous invocation that failed
_SCHEDULE_S = 60


class World:
    """`events` is what clients saw, `complaints` what was found wrong at once; `path` is every port call."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.seed = plan.seed
        self.random = random.Random(plan.seed)
        self.scheduler = Scheduler()
        self.adapters = memory_adapters(ManualClock(), SeededChance(f"store {plan.seed}"))
        self.past = Past(self.scheduler)
        self.subscribers = Subscribers(self)
        self.wakes = Wakes(self)
        self.events: list[Event] = []
        self.complaints: list[str] = []
        self.path: list[tuple[float, str, str, Any, str]] = []
        self.promises = Promises(self.adapters.transactions, self.accuse)
        self.calm = Faults()
        self.over = False
        self.streams = True
        self.readers: dict[tuple[str, str], str] = {}  # by uids of the group and of a broadcast's consumer
        self.groups: dict[str, GroupPlan] = {g.name: g for g in plan.groups}
        self.alive = True  # what clients live with
        self._stamps = itertools.count()
        self._names: defaultdict[str, int] = defaultdict(int)
        self.processes = {role: [self.begin(role) for _ in range(count)] for role, count in PROCESSES.items()}

    # What processes tell

    def stamp(self) -> int:
        return next(self._stamps)

    def trace(self, process: Process, method: str, args: Any, fault: str) -> None:
        self.path.append((self.scheduler.now, process.name, method, args, fault))
        if len(self.path) > _MOST_CALLS:
            raise Endless(f"{_MOST_CALLS} calls, and no end to it")

    def accuse(self, complaint: str) -> None:
        self.complaints.append(complaint)

    def applied(self, process: Process, method: str, args: tuple[Any, ...], answer: Any) -> None:
        """A port call has been made: the stream sees new rows, stale reads remember what was."""
        if method == "cursors.write" and not isinstance(answer, Refused):
            before = self.past.cursor(args[0], 0) or Cursor()
            for law in broken(before, answer, args[1], process.clock.now_ms()):
                self.accuse(f"{process.name} wrote {args[0].shard}: {law}")
        self.past.note(method, args, answer)
        if method == "control.put_group":
            self.readers[args[1].uid, ""] = args[1].name
        if method == "control.put_consumer":
            self.readers[args[1].uid, args[2].uid] = self.reader_of(args[1].name, args[2].name)
        if method == "log.put" and isinstance(answer, Stored):
            self.promises.stored(args[1], args[4] if len(args) > 4 else (), process.clock.now_ms())
            if self.streams:
                self.wakes.appended(args[0])
        if method == "transactions.prepare" and not answer:
            self.promises.prepared(args[0])

    def died(self, process: Process) -> None:
        process.notes.ended()
        role = process.name.partition("-")[0]
        if not self.over:
            self.processes[role] = [self.begin(role) if p is process else p for p in self.processes[role]]

    def reader_of(self, group: str, consumer: str | None) -> str:
        return reader_name(group, consumer if self.groups[group].mode == "broadcast" else None)

    def reader_by(self, group_uid: str, consumer_uid: str) -> str:
        return self.readers[group_uid, consumer_uid]

    # Processes

    def begin(self, role: str, faults: Faults | None = None, skew_ms: int | None = None) -> Process:
        """A new process, in the place of a dead one."""
        self._names[role] += 1
        most = self.plan.skew_ms
        skew = self.random.randint(-most, most) if skew_ms is None else skew_ms
        process = Process(
            f"{role}-{self._names[role]}",
            self,
            Clock(self.scheduler, skew),
            faults or self.plan.faults,
            self.plan.pool,
        )
        self.observe(process)
        return process

    observe = staticmethod(observed)

    def some(self, role: str) -> Process:
        return self.random.choice(self.processes[role])

    def ask(
        self, request: Callable[Concatenate[SimClient, P], T], *args: P.args, **named: P.kwargs
    ) -> T | None:
        """One request of a client to some process; None where it was refused, or no answer came."""
        process = self.some("api")
        try:
            with process.at_work():
                return request(SimClient(process), *args, **named)
        except HeadraceError:
            return None
        except Death:
            if not self.alive:
                raise
            return None

    def start(
        self, role: str, work: Callable[[Deps, Task], object], after_ms: float = 0, tries: int = 0
    ) -> None:
        """Start a function, by itself, in some process."""

        def function() -> None:
            task = self.scheduler.current()
            assert task
            process = self.some(role)
            task.until = self.scheduler.now + self.plan.function_seconds * SECOND_MS
            try:
                with process.at_work() as deps:
                    work(deps, task)
            except (HeadraceError, Death):
                if tries and self.alive:
                    self.start(role, work, self.random.uniform(100, 60_000), tries - 1)

        self.scheduler.spawn(function, self, after_ms)

    def seconds_left(self, task: Task) -> float:
        return (task.until - self.scheduler.now) / 1000

    def pause(self, seconds: float) -> None:
        self.scheduler.wait(seconds * 1000)

    # The course of events

    def run(self) -> None:
        """Trouble, for as long as planned. Then nobody is left."""
        self.scheduler.run(self.scheduler.now + self.plan.seconds * SECOND_MS)
        self.over, self.alive = True, False
        for processes in self.processes.values():
            for process in processes:
                process.die()
        self.scheduler.kill_all_of(self)
        self.scheduler.run(self.scheduler.now)
        assert not self.scheduler.tasks

    def schedule(self) -> None:
        """What EventBridge starts each minute."""
        every = _SCHEDULE_S * SECOND_MS
        for role, work in (
            ("mover", lambda deps, task: deps.mover.run_once(lambda: self.seconds_left(task) > 5)),
            ("keeper", lambda deps, task: deps.sweeper.run_once()),
            ("keeper", lambda deps, task: deps.assigner.run_once()),
            ("keeper", lambda deps, task: deps.checkpointer.run_once()),
            ("keeper", lambda deps, task: deps.expirer.run_once()),
        ):
            self.scheduler.spawn(self._repeating(role, work), self, self.random.uniform(0, every / 4))

    def _repeating(self, role: str, work: Callable[[Deps, Task], object]) -> Callable[[], None]:
        def forever() -> None:
            while True:
                self.start(role, work, self.random.uniform(0, 500), _RETRIES)
                self.pause(_SCHEDULE_S)

        return forever


class Wakes:
    """ports.Invoker and the log's stream: both deliver late, not in order, twice, or never."""

    def __init__(self, world: World) -> None:
        self._world = world

    def invoke(self, function: str, event: Mapping[str, Any]) -> None:
        """At least once, says Lambda; we do not count on it."""
        for delay_ms in self._times(5, 400):
            begin = {"deliver": self._deliver, "check": self._check}.get(function, self._move)
            begin(event, delay_ms)

    def _move(self, event: Mapping[str, Any], delay_ms: float) -> None:
        fragments, left = event["detail"]["fragments"], self._world.seconds_left
        self._world.start(
            "mover",
            lambda deps, task: deps.mover.run_once(lambda: left(task) > 5, fragments),
            delay_ms,
            _RETRIES,
        )

    def _deliver(self, event: Mapping[str, Any], delay_ms: float) -> None:
        job, left = job_of(event), self._world.seconds_left
        self._world.start(
            "worker", lambda deps, task: deps.deliverer.deliver(job, lambda: left(task)), delay_ms, _RETRIES
        )

    def _check(self, event: Mapping[str, Any], delay_ms: float) -> None:
        checks, left = [Check(*each) for each in event["checks"]], self._world.seconds_left
        self._world.start(
            "worker", lambda deps, task: deps.checker.check(checks, lambda: left(task)), delay_ms, _RETRIES
        )

    def appended(self, shard: ShardKey) -> None:
        """The stream shows a new row."""
        for delay_ms in self._times(20, 2_000):
            self._world.start("router", lambda deps, _: deps.waker.route([str(shard)]), delay_ms, _RETRIES)

    def _times(self, least_ms: float, most_ms: float) -> list[float]:
        draw, loss = self._world.random.random(), self._world.plan.stream_loss
        times = 0 if draw < loss else 2 if draw > 0.9 else 1
        return [self._world.random.uniform(least_ms, most_ms) for _ in range(times)]
