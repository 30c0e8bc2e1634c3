"""The processes of a soak, and how its time is divided among the kinds of nets."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from . import kinds
from .kinds import KINDS, Played

_LONGEST_WAIT_S = 1.0


@dataclass
class Tally:
    """What was played of one kind: the seeds from `first` on. `seconds` are all processes' together."""

    first: int
    next: int
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, Played]] = field(default_factory=list)


@dataclass(eq=False)
class _Worker:
    """A process, and what it plays: kind, seed, since when."""

    process: Any
    pipe: Connection
    task: tuple[str, int, float] | None = None

    def begin(self, kind: str, number: int) -> None:
        self.task = kind, number, time.monotonic()
        self.pipe.send((kind, number))


@dataclass
class Soak:
    """A soak: `tallies` by kind; `unended` is what was under way when the time was up."""

    tallies: dict[str, Tally]
    unended: list[tuple[str, int, float]] = field(default_factory=list)

    @property
    def violations(self) -> int:
        return sum(len(tally.failures) for tally in self.tallies.values())


def run(
    names: Sequence[str],
    first: int,
    seconds: float,
    processes: int,
    tell: Callable[[Soak, str, int, Played | None], None],
) -> Soak:
    """Play for so many seconds; `tell` is called after each seed, and each second. What is under way at the end is
    broken off: the end does not depend on how long a seed takes."""
    soak = Soak({name: Tally(first, first) for name in names})
    end = time.monotonic() + seconds
    context = multiprocessing.get_context("spawn")
    crew = [_hired(context) for _ in range(processes)]
    seconds_of: defaultdict[str, float] = defaultdict(float)
    try:
        while (seconds_left := end - time.monotonic()) > 0:
            for worker in crew:
                if worker.task is None:
                    _give(worker, soak, seconds_of)
            ready = wait([worker.pipe for worker in crew], min(seconds_left, _LONGEST_WAIT_S))
            for worker in crew:
                if worker.pipe in ready:
                    _take(worker, soak, seconds_of, tell)
            tell(soak, "", 0, None)
        soak.unended = [worker.task for worker in crew if worker.task]
    finally:
        for worker in crew:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.process.pid, signal.SIGKILL)
            worker.process.join()
    return soak


def _hired(context: Any) -> _Worker:
    ours, theirs = context.Pipe()
    process = context.Process(target=_works, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _works(pipe: Connection) -> None:
    """A process's life; what it starts ends with it."""
    os.setpgid(0, 0)
    kinds.prepare()
    while True:
        kind, number = pipe.recv()
        pipe.send(kinds.play(kind, number))


def _give(worker: _Worker, soak: Soak, seconds_of: dict[str, float]) -> None:
    """The next seed of the kind that is furthest behind its part."""
    kind = min(soak.tallies, key=lambda name: seconds_of[name] / KINDS[name].part)
    seconds_of[kind] += 0.01  # so that two who begin together do not play the same kind
    tally = soak.tallies[kind]
    worker.begin(kind, tally.next)
    tally.next += 1


def _take(
    worker: _Worker,
    soak: Soak,
    seconds_of: dict[str, float],
    tell: Callable[[Soak, str, int, Played | None], None],
) -> None:
    assert worker.task
    kind, number, since = worker.task
    result, counts = worker.pipe.recv()
    tally = soak.tallies[kind]
    tally.seconds += time.monotonic() - since
    seconds_of[kind] += time.monotonic() - since
    tally.counts.update(counts)
    if result.complaints:
        tally.failures.append((number, result))
    worker.task = None
    tell(soak, kind, number, result)
