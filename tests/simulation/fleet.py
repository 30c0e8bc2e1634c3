"""The processes of a world. Three ways to be: some few that do many things at once; one that does everything, as on one
machine (`Plan.together`); or, as on Lambda, each does one thing at a time, is born cold when all others are busy, and
is ended when its function's time is up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.simulation.processes import Clock, Faults, Process

SIZES: Mapping[str, int] = {"api": 2, "worker": 2, "mover": 2, "keeper": 1, "router": 1}
MACHINE: Mapping[str, int] = {"machine": 1}


class Fleet:
    """Processes by role."""

    def __init__(self, world: Any) -> None:
        self._world = world
        sizes = MACHINE if world.plan.together else SIZES
        self._names = dict.fromkeys(sizes, 0)
        self._busy: set[Process] = set()
        self._of: dict[str, list[Process]] = {}
        self._of.update({role: [self.begin(role) for _ in range(count)] for role, count in sizes.items()})

    @property
    def roles(self) -> list[str]:
        return list(self._of)

    def begin(self, role: str, faults: Faults | None = None, skew_ms: int | None = None) -> Process:
        """A process that has just started and gets no requests yet."""
        world = self._world
        self._names[role] = self._names.get(role, 0) + 1
        most = world.plan.skew_ms
        process = Process(
            f"{role}-{self._names[role]}",
            world,
            Clock(world.scheduler, world.random.randint(-most, most) if skew_ms is None else skew_ms),
            faults or world.plan.faults,
            world.plan.pool,
        )
        world.observe(process)
        return process

    def some(self, role: str) -> Process:
        """Any process of the role."""
        role = self._kind(role)
        if not self._of[role]:
            self._of[role] = [self.begin(role)]
        process: Process = self._world.random.choice(self._of[role])
        return process

    def _kind(self, role: str) -> str:
        return "machine" if self._world.plan.together else role

    def everybody(self) -> Iterator[Process]:
        """All that are alive."""
        return (process for processes in list(self._of.values()) for process in list(processes))

    def died(self, process: Process) -> None:
        """A process ends. On one machine another takes its place at once."""
        role = process.name.partition("-")[0]
        if process in self._of.get(role, ()):
            self._of[role].remove(process)
            if not self._world.plan.alone:
                self._of[role].append(self.begin(role))

    @contextmanager
    def at_work(self, role: str, seconds: float | None = None) -> Iterator[Process]:
        """A process for one request or function; it is ended when that takes longer than so many seconds."""
        if not self._world.plan.alone:
            process = self.some(role)
            with process.at_work():
                yield process
            return
        process = self._free(role)
        self._busy.add(process)
        over = False

        def end_in_time() -> None:
            if not over:
                self._world.injected["time limit"] += 1
                process.die()

        if seconds is not None:
            self._world.scheduler.spawn(end_in_time, self._world, seconds * 1000)
        try:
            with process.at_work():
                yield process
        finally:
            over = True
            self._busy.discard(process)

    def _free(self, role: str) -> Process:
        world = self._world
        idle = [process for process in self._of[role] if process not in self._busy]
        if idle and world.random.random() >= world.plan.cold:
            process: Process = world.random.choice(idle)
            return process
        if idle:  # the end of an idle process has no effect
            idle[0].retire()
            self._of[role].remove(idle[0])
        process = self.begin(role)
        self._of[role].append(process)
        self._busy.add(process)
        world.pause(world.random.uniform(*world.plan.cold_start_s))
        return process

    def steps(self) -> None:
        """An actor: clocks are set, forward and back."""
        world = self._world
        while True:
            world.pause(world.random.expovariate(1 / world.plan.steps_every_s))
            process = self.some(world.random.choice(self.roles))
            process.clock.skew_ms = world.random.randint(-world.plan.skew_ms, world.plan.skew_ms)
            world.injected["clock step"] += 1
