"""Virtual time and virtual threads: tasks of which exactly one runs, until it waits; then the next in time runs.

Everything that happens is one heap of moments. So a run is a function of its seed, and hours cost nothing.
"""

from __future__ import annotations

import heapq
import itertools
import queue
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, Protocol

from greenlet import getcurrent, greenlet

from chalicelib.domain.errors import HeadraceError
from tests.support.clock import START_MS
from tests.support.faults import Death


class Endless(AssertionError):
    """A world that does not come to its end."""


class Home(Protocol):
    """What a task lives and dies with."""

    alive: bool


class Task(greenlet):
    """A virtual thread. `home` is the process whose death it dies while it is at work there."""

    def __init__(self, of: Scheduler, work: Callable[[], object], home: Home | None) -> None:
        super().__init__(self._live, of.hub)
        self._of = of
        self._work = work
        self.home = home
        self.until = 0.0  # when the function it runs must have ended
        self.moment: list[Any] | None = None  # its place in the heap while it waits for a time

    def _live(self) -> None:
        try:
            if self.home is None or self.home.alive:
                self._work()
        except Death:
            pass
        finally:
            self._of.tasks.pop(self, None)


class Scheduler:
    """Runs tasks in the order of virtual time; `now` is in milliseconds."""

    def __init__(self) -> None:
        self.now = float(START_MS)
        self.hub = getcurrent()
        self.tasks: dict[Task, None] = {}
        self.errors: list[Exception] = []  # of work in threads: a mistake of ours
        self._heap: list[list[Any]] = []
        self._count = itertools.count()
        _running[:] = [self]

    def spawn(self, work: Callable[[], object], home: Home | None = None, after_ms: float = 0) -> Task:
        """Begin a task after a while."""
        task = Task(self, work, home)
        self.tasks[task] = None
        self._at(self.now + after_ms, task)
        return task

    def run(self, until: float) -> None:
        """Let everything happen that is due by then."""
        while self._heap and self._heap[0][0] <= until:
            self.now, _, task = heapq.heappop(self._heap)
            if task is not None:
                task.moment = None
                task.switch()
        self.now = max(self.now, until)

    def current(self) -> Task | None:
        task = getcurrent()
        return task if isinstance(task, Task) else None

    def wait(self, ms: float) -> None:
        """Let time pass for the task at work (outside tasks: for everybody)."""
        task = self.current()
        if task is None:
            self.now += ms
            return
        self._at(self.now + ms, task)
        self.park(task)

    def park(self, task: Task) -> None:
        """Wait until another task wakes this one. Raises Death if its home has ended."""
        self.hub.switch()
        if task.home is not None and not task.home.alive:
            raise Death("with its process")

    def wake(self, task: Task) -> None:
        """Let a waiting task go on now."""
        if task.moment is not None:
            task.moment[2] = None
        self._at(self.now, task)

    def kill_all_of(self, home: Home) -> None:
        """Those that are at work there die where they wait; `home.alive` is False by now."""
        for task in [t for t in self.tasks if t.home is home and t is not self.current()]:
            self.wake(task)

    def _at(self, at: float, task: Task) -> None:
        task.moment = [at, next(self._count), task]
        heapq.heappush(self._heap, task.moment)


_running: list[Scheduler] = []


def current() -> Scheduler:
    """The scheduler of the world at hand."""
    return _running[-1]


class Lock:
    """threading.Lock for tasks."""

    def __init__(self, of: Scheduler) -> None:
        self._of = of
        self._held = False
        self._waiting: deque[Task] = deque()

    def acquire(self, blocking: bool = True) -> bool:
        task = self._of.current()
        while self._held:
            if not blocking:
                return False
            assert task is not None, "nobody could ever release it"
            self._waiting.append(task)
            self._of.park(task)
        self._held = True
        return True

    def release(self) -> None:
        self._held = False
        while self._waiting:
            task = self._waiting.popleft()
            if task in self._of.tasks:
                self._of.wake(task)
                return

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Queue:
    """queue.SimpleQueue for tasks, with one reader."""

    def __init__(self, of: Scheduler) -> None:
        self._of = of
        self._items: deque[Any] = deque()
        self._reader: Task | None = None

    def put(self, item: object) -> None:
        self._items.append(item)
        if self._reader:
            self._of.wake(self._reader)
            self._reader = None

    def get(self, timeout: float = 1e9) -> Any:
        if not self._items and (task := self._of.current()):
            self._reader = task
            try:
                self._of.wait(timeout * 1000)
            finally:
                self._reader = None
        if not self._items:
            raise queue.Empty
        return self._items.popleft()

    def empty(self) -> bool:
        return not self._items


class Pool(Executor):
    """An executor of so many tasks at once."""

    def __init__(self, of: Scheduler, size: int) -> None:
        self._of = of
        self._free = size
        self._queued: deque[Callable[[], None]] = deque()
        self._busy = 0
        self._closing: Task | None = None

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._queued.append(partial(self._do, partial(work, *args, **kwargs), future))
        self._busy += 1
        self._next()
        return future

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[Any]:
        futures = [self.submit(fn, *each) for each in zip(*iterables, strict=True)]
        self.shutdown()
        return iter([each.result() for each in futures])

    def _next(self) -> None:
        me = self._of.current()
        while self._free and self._queued:
            self._free -= 1
            task = self._of.spawn(self._queued.popleft(), me.home if me else None)
            task.until = me.until if me else 0.0

    def _do(self, work: Callable[[], Any], future: Future[Any]) -> None:
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - as executors do
            self._of.errors += [] if isinstance(error, HeadraceError) else [error]
            future.set_exception(error)
        else:
            future.set_result(result)
        self._free += 1
        self._busy -= 1
        self._next()
        if self._closing and not self._busy:
            self._of.wake(self._closing)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closing = self._of.current()
        while self._busy and self._closing and self._closing.home and self._closing.home.alive:
            self._of.park(self._closing)
