"""The mover: moves timers that are due to where they belong, each exactly once.

Most timers become rows of the log, in the transaction that removes them. Runs are short: a wake-up of the mover's queue
starts one when timers are due, and the schedule starts one each minute. Several at once do no harm: the condition of
each removal decides.

Fragments are looked at, and shards moved to, beside one another. What the store refuses, or takes long for, is left for
later and delays no other; in its shard, later timers wait for it.
"""

from __future__ import annotations

import queue
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass
from functools import partial
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

from ..domain.errors import Unavailable, Unreadable
from ..domain.segment import ShardKey
from ..domain.timer import FirstTimers, Timer, TimerKind, due_ms_of, next_check
from ..domain.times import MINUTE_MS, SECOND_MS
from ..ports.world import Clock, Random
from ..store import Timers

HORIZON_MS = 75_000  # the schedule sends the wake-ups for so long: its next run may be late
_LONG_BEFORE_MS = 900_000  # the queue delays a wake-up for as long: none was sent for a timer stored before
_MOST_AHEAD_MS = 1_000
_GATHER_SECONDS = 0.5
_MANY = 10  # wake-ups that start one run, at most

_RETRY_MS = 1_000  # after a refusal
_STILL_SECONDS = 0.25  # beside work that goes on
_PATIENCE_SECONDS = 1.0  # of real time: what takes longer is left to itself
_PAGE = 250  # of one fragment
_CHECKS_TOGETHER = 25

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

# Move the drafts of timers into a shard's log, to be kept for so many days. Returns how many were moved.
Append = Callable[[ShardKey, int | float, Sequence[Timer]], int]
# Start the deliveries that WAKE timers stand for. Raises Unavailable if that fails.
Wake = Callable[[Sequence[Timer]], None]
# Start the checks of transactions, whose timers have been stored with their next time. Raises Unavailable if that
# fails.
Check = Callable[[Sequence[Timer]], None]
# Send wake-ups of the mover: each for a time, and for fragments.
WakeAt = Callable[[Iterable[tuple[int, Sequence[int]]]], object]
HasTime = Callable[[], bool]
# Report an unexpected error, with the fragment or the shard where it happened.
Tell = Callable[[str, BaseException], None]


@dataclass(slots=True)
class MoveReport:
    """What one run did. `late_ms`: the greatest lateness of a timer that it moved. `refused`: how many calls of the
    store or of a function failed."""

    moved: int = 0
    woken: int = 0
    checked: int = 0
    late_ms: int = 0
    refused: int = 0
    finished: bool = True

    def add(self, other: MoveReport) -> None:
        """Add the counts of one load."""
        self.moved += other.moved
        self.woken += other.woken
        self.checked += other.checked

    def as_dict(self) -> dict[str, int | bool]:
        """The counts as JSON, for the function's log line."""
        return asdict(self)


class _Load(NamedTuple):
    """Timers that are moved together: of one kind and one shard. If the move fails, all of them stay."""

    kind: TimerKind
    shard: ShardKey
    keep_days: int | float


class Beside(Generic[K, T]):
    """Runs work for several keys in threads, so that slow work for one key delays only that key: at most one piece of
    work for each key at a time."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._ends: queue.SimpleQueue[tuple[K, Future[T]]] = queue.SimpleQueue()
        self.under_way: set[K] = set()  # the keys whose work has not ended yet

    def do(self, tasks: Mapping[K, Callable[[], T]]) -> dict[K, Future[T]]:
        """Start the work of each key that has none under way. Returns what has ended after a moment, also of earlier
        calls."""
        new_keys = tasks.keys() - self.under_way
        for key in (key for key in tasks if key in new_keys):
            self.under_way.add(key)
            self._threads.submit(tasks[key]).add_done_callback(partial(self._note, key))
        futures: dict[K, Future[T]] = {}
        while new_keys & self.under_way or not self._ends.empty():
            try:
                key, future = self._ends.get(timeout=_PATIENCE_SECONDS)
            except queue.Empty:
                break
            self.under_way.discard(key)
            futures[key] = future
        return futures

    def _note(self, key: K, future: Future[T]) -> None:
        self._ends.put((key, future))


@dataclass(kw_only=True, eq=False)
class MoverRun:
    """One run: one pass over its fragments, and another one as long as something takes long."""

    mover: Mover
    threads: Executor

    def __post_init__(self) -> None:
        self.report = MoveReport()
        self._looks: Beside[int, FirstTimers] = Beside(self.threads)
        self._moves: Beside[_Load, MoveReport] = Beside(self.threads)
        self._told: set[object] = set()
        # Of one pass:
        self._stuck: set[_Load] = set()  # what could not be moved
        self._left: set[int] = set()  # the fragments that need another run
        self._met: set[int] = set()  # the fragments in which another run was first
        self._is_slow = False  # something takes long: there must be another pass

    def move(
        self, fragments: Sequence[int], until_ms: int, has_time: HasTime, horizon_ms: int = 0
    ) -> dict[int, FirstTimers]:
        """Move what is due by `until_ms`, waiting for it; with a horizon, look so far ahead. Send another wake-up for
        what could not be moved. Returns what was seen that is not due yet, by fragment."""
        ahead: dict[int, FirstTimers] = {}
        while True:
            self._stuck, self._left, self._met, self._is_slow = set(), set(), set(), False
            looks = self._look_due(fragments, until_ms, horizon_ms)
            ahead |= self._empty(looks, horizon_ms, has_time)
            if not self._is_slow or not has_time():
                break
            self.mover.clock.sleep(_STILL_SECONDS)
        if left := set(fragments) if self._is_slow else self._left:
            self.report.finished = False
            again_ms = self.mover.clock.now_ms() + (_RETRY_MS if has_time() else 0)
            self.mover.wake_at([(again_ms, sorted(left))])
        return ahead

    def _look_due(self, fragments: Sequence[int], until_ms: int, horizon_ms: int) -> dict[int, FirstTimers]:
        """The first timers of each fragment, once all that are due by `until_ms` are due."""
        while True:
            now_ms = self.mover.clock.now_ms()
            looks = self._look(dict.fromkeys(fragments, ""), max(until_ms, now_ms), horizon_ms)
            soon = [t.due_ms for look in looks.values() for t in look.timers if now_ms < t.due_ms <= until_ms]
            if not soon:
                return looks
            self.mover.clock.sleep((max(soon) - now_ms) / 1000)

    def _empty(
        self, looks: Mapping[int, FirstTimers], horizon_ms: int, has_time: HasTime
    ) -> dict[int, FirstTimers]:
        """Move what is due: in fragments with few such timers together, so that those of one shard become one segment.
        Fragments with many come one after the other, in another order than in another run."""
        now_ms = self.mover.clock.now_ms()
        full = [fragment for fragment, look in looks.items() if _is_full(look, now_ms)]
        ahead = self._move_due({fragment: look for fragment, look in looks.items() if fragment not in full})
        first = self.mover.random.below(len(full)) if full else 0
        for fragment in full[first:] + full[:first]:
            position: str | None = ""
            while position is not None:
                if fragment in self._met or not has_time():
                    self._left.add(fragment)
                    break
                looked = self._look({fragment: position}, self.mover.clock.now_ms(), horizon_ms)
                ahead |= self._move_due(looked)
                look = looked.get(fragment)
                position = look.go_on_after if look and _is_full(look, self.mover.clock.now_ms()) else None
        return ahead

    def _look(self, positions: Mapping[int, str], due_ms: int, horizon_ms: int = 0) -> dict[int, FirstTimers]:
        """The timers of the fragments, behind their positions, that are due by then, or by the horizon after it. The
        schedule's look may be a moment old: the newest timers have wake-ups of their own."""
        look = partial(self.mover.timers.first_due, consistent=not horizon_ms)
        tasks = {f: partial(look, f, due_ms + horizon_ms, _PAGE, place) for f, place in positions.items()}
        looks, refused_fragments = self._results(self._looks.do(tasks))
        self._left |= refused_fragments
        self._is_slow |= not positions.keys() <= looks.keys() | refused_fragments
        return looks

    def _move_due(self, looks: Mapping[int, FirstTimers]) -> dict[int, FirstTimers]:
        """Move what is due of these timers, the earliest first, except loads that are stuck. Returns the others."""
        now_ms = self.mover.clock.now_ms()
        due_timers = [timer for look in looks.values() for timer in look.timers if timer.due_ms <= now_ms]
        loads: defaultdict[_Load, list[Timer]] = defaultdict(list)
        for timer in sorted(due_timers, key=attrgetter("due_ms")):
            loads[_load_of(timer)].append(timer)
            if timer.kind is not TimerKind.SCHEDULE:  # those may wait for a rate
                self.report.late_ms = max(self.report.late_ms, now_ms - timer.due_ms)
        begun = loads.keys() - self._stuck - self._moves.under_way
        tasks = {load: partial(self._carry, load, loads[load]) for load in loads if load in begun}
        reports, refused_loads = self._results(self._moves.do(tasks))
        for report in reports.values():
            self.report.add(report)
        won = {load for load in begun & reports.keys() if _has_won(load, reports[load])}
        lost = begun & reports.keys() - won
        self._met |= _fragments_in(loads, lost) - _fragments_in(loads, won)
        waiting = loads.keys() - (begun & reports.keys())
        self._is_slow |= bool(waiting - self._stuck - refused_loads)
        self._stuck |= waiting
        self._left |= _fragments_in(loads, waiting)
        return {
            fragment: FirstTimers([t for t in look.timers if t.due_ms > now_ms], look.go_on_after)
            for fragment, look in looks.items()
        }

    def _carry(self, load: _Load, timers: Sequence[Timer]) -> MoveReport:
        if load.kind is TimerKind.WAKE:
            self.mover.wake(timers)
            self.mover.timers.drop(timers)
            return MoveReport(woken=len(timers))
        if load.kind is TimerKind.CHECK:
            return self._check(timers)
        return MoveReport(moved=self.mover.append(load.shard, timers[0].keep_days, timers))

    def _check(self, timers: Sequence[Timer]) -> MoveReport:
        """Producers may hang: they are asked by a function of its own."""
        later = [next_check(timer, self.mover.clock.now_ms()) for timer in timers]
        self.mover.timers.store(later)  # before anything else: a crash must not end a transaction's checks
        # For those that are due later, the schedule sends the wake-ups.
        soon = [timer for timer in later if timer.due_ms < self.mover.clock.now_ms() + MINUTE_MS]
        self.mover.wake_at([(timer.due_ms, self.mover.timers.fragments_of(timer.id)) for timer in soon])
        for start in range(0, len(timers), _CHECKS_TOGETHER):
            part = slice(start, start + _CHECKS_TOGETHER)
            self.mover.check(later[part])  # if it is refused, those before it are not started again
            self.mover.timers.drop(timers[part])
        return MoveReport(checked=len(timers))

    def _results(self, futures: Mapping[K, Future[T]]) -> tuple[dict[K, T], set[K]]:
        """The results of work, and the keys of work that failed. An unexpected error is reported once."""
        results, refused_keys = {}, set()
        for key, future in futures.items():
            error = future.exception()
            if error is None:
                results[key] = future.result()
                continue
            if not isinstance(error, Exception):
                raise error  # the end of the process, not of this work
            refused_keys.add(key)
            self.report.refused += 1
            self.report.finished = False
            is_passing = isinstance(error, Unavailable) and not isinstance(error, Unreadable)
            if not is_passing and key not in self._told:
                self._told.add(key)
                self.mover.tell(str(key), error)
        return results, refused_keys


@dataclass(kw_only=True, frozen=True, slots=True)
class Mover:
    """Starts runs. One per process. There is one function for each kind of timer."""

    timers: Timers
    append: Append
    wake: Wake
    check: Check
    wake_at: WakeAt
    tell: Tell
    clock: Clock
    random: Random
    threads: Callable[[], Executor]

    def run_once(
        self,
        has_time: HasTime = lambda: True,
        fragments: Iterable[int] | None = None,
        until_ms: int = 0,
        wakes: int = 1,
    ) -> MoveReport:
        """Move what is due in these fragments (None: in all), and what is due until `until_ms`, if that is within a
        second. What cannot be moved now gets another wake-up. `wakes`: how many wake-ups have started this run. Where
        several have, many are under way, and fewer runs, each of which moves more, cost less."""
        if 1 < wakes < _MANY:
            self.clock.sleep(_GATHER_SECONDS)
        wanted = list(self.timers.fragments() if fragments is None else fragments)
        now_ms = self.clock.now_ms()
        if until_ms > now_ms + _MOST_AHEAD_MS:  # the wake-up came too early by this clock
            self.wake_at([(until_ms, wanted)])
        with self.threads() as threads:
            run = MoverRun(mover=self, threads=threads)
            run.move(wanted, min(max(now_ms, until_ms), now_ms + _MOST_AHEAD_MS), has_time)
        return run.report

    def tick(self, has_time: HasTime = lambda: True) -> MoveReport:
        """The schedule's run: move what is due in all fragments, and send the wake-ups of timers that were stored long
        before their time."""
        with self.threads() as threads:
            run = MoverRun(mover=self, threads=threads)
            looks = run.move(self.timers.fragments(), self.clock.now_ms(), has_time, HORIZON_MS)
        end_ms = self.clock.now_ms() + HORIZON_MS
        self.wake_at([wake for fragment in looks for wake in _wakes(fragment, looks[fragment], end_ms)])
        return run.report


def _wakes(fragment: int, look: FirstTimers, end_ms: int) -> Iterable[tuple[int, list[int]]]:
    """When a fragment needs the mover. What is behind a full look is not read: it may be due in any second."""
    for timer in look.timers:
        if timer.due_ms - timer.stored_ms > _LONG_BEFORE_MS:
            yield timer.due_ms, [fragment]
    if look.go_on_after is not None:
        first_ms = due_ms_of(look.go_on_after)
        yield from ((at_ms, [fragment]) for at_ms in range(first_ms, end_ms, SECOND_MS))


def _load_of(timer: Timer) -> _Load:
    """The load that a timer belongs to. Messages of one shard go together, even if the topic's retention changed."""
    return _Load(timer.kind, timer.shard, timer.keep_days if timer.kind is TimerKind.RETRY else 0)


def _is_full(look: FirstTimers, now_ms: int) -> bool:
    """May there be more that is due?"""
    return look.go_on_after is not None and look.timers[-1].due_ms <= now_ms


def _has_won(load: _Load, report: MoveReport) -> bool:
    """Has another run not moved all of it before?"""
    return load.kind in (TimerKind.WAKE, TimerKind.CHECK) or report.moved > 0


def _fragments_in(loads: Mapping[_Load, Sequence[Timer]], some: Iterable[_Load]) -> set[int]:
    """The fragments of some loads."""
    timers = (timer for load in some for timer in loads[load])
    return {timer.fragment for timer in timers if timer.fragment is not None}
