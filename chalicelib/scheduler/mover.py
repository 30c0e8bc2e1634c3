"""The mover: takes timers that are due to where they belong, each exactly once.

Most timers become rows of the log, in the transaction that removes them. A run holds a lease per fragment, so that
movers share the work instead of racing; safety never depends on it. A run that falls behind gives half of its fragments
to another, and one whose time is up all of them.

Fragments are looked at, and shards moved to, beside one another. What the store refuses, or takes long for, is left for
later, and holds up nobody else; in its shard nothing comes behind it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass
from functools import partial
from operator import attrgetter
from typing import NamedTuple, TypeVar

from ..domain.errors import Unavailable
from ..domain.limits import FRAGMENTS
from ..domain.segment import ShardKey
from ..domain.timer import AWAKE_MS, SOON_MS, UNREADABLE, Timer, TimerKind, again
from ..ports.timers import Look, Timers
from ..ports.world import Clock
from .beside import Beside

_LEASE_MS = 15_000
_RENEW_MS = 5_000
_TICK_SECONDS = 1.0
_SHORTEST_MS = 50  # what is due within it goes together
_LONG_TICK_MS = 1_000  # a mover whose tick takes longer is behind, and shares its fragments
_RETRY_MS = 1_000  # after a refusal
_STILL_MS = 250  # beside work that goes on
_PATIENCE_SECONDS = 1.0  # of real time: what takes longer is left to itself
_PAGE = 250  # of one fragment
_ASIDE_MS = 600_000  # a process that starts looks for what was set aside, and then again after so long
_OUTLIVED_MS = 10_000  # a run so old may be of a release that is no more

K = TypeVar("K")
T = TypeVar("T")

Append = Callable[[ShardKey, int, Sequence[Timer]], int]
"""Put the drafts of timers into a shard, to be kept for so many days, taking the timers away; how many went."""
Wake = Callable[[Sequence[Timer]], None]
"""Start the deliveries that WAKE timers stand for. Raises Unavailable where that is refused."""
Check = Callable[[Sequence[Timer]], None]
"""Start the checks of transactions; each timer is at its next time already."""
SetAside = Callable[[Sequence[Timer]], None]
"""Take what cannot be read out of the way, and tell of it."""
HandOver = Callable[[Sequence[int]], object]
"""Start another mover for these fragments."""
Tell = Callable[[str, BaseException], None]
"""Something that nobody expected happened at a fragment, or to the timers of a shard: a bug of ours."""


@dataclass(slots=True)
class MoveReport:
    """What one run did. `late_ms` is the greatest lateness of a timer it moved; `refused` counts what the store, or
    an invocation, had no answer for."""

    moved: int = 0
    woken: int = 0
    checked: int = 0
    set_aside: int = 0
    late_ms: int = 0
    refused: int = 0
    ticks: int = 0
    finished: bool = True

    def add(self, other: MoveReport) -> None:
        """Count what one load brought about."""
        self.moved += other.moved
        self.woken += other.woken
        self.checked += other.checked
        self.set_aside += other.set_aside

    def as_dict(self) -> dict[str, int | bool]:
        """The counts as JSON, for the function's log line."""
        return asdict(self)


@dataclass(kw_only=True, frozen=True, slots=True)
class Ways:
    """Where timers go."""

    append: Append
    wake: Wake
    check: Check
    set_aside: SetAside
    hand_over: HandOver
    tell: Tell


class Mover:
    """Moves what is due."""

    def __init__(
        self,
        *,
        timers: Timers,
        ways: Ways,
        clock: Clock,
        new_owner: Callable[[], str],
        threads: Callable[[], Executor],
    ) -> None:
        """`new_owner` makes a name for the leases of each run: a process may have several at once."""
        self._timers = timers
        self._ways = ways
        self._clock = clock
        self._new_owner = new_owner
        self._threads = threads
        self._looked_aside_ms: int | None = (
            None  # when this process last looked for what was set aside, and there was none
        )

    def run_once(
        self, has_time: Callable[[], bool] = lambda: True, fragments: Iterable[int] | None = None
    ) -> MoveReport:
        """Move what is due, and stay while more is due soon.

        `fragments` are those that somebody has just stored a timer in; None: look at all.
        """
        with self._threads() as threads:
            run = _Run(
                timers=self._timers,
                ways=self._ways,
                clock=self._clock,
                owner=self._new_owner(),
                threads=threads,
            )
            if fragments is None:
                self._bring_back(run.report)
                run.stay(range(FRAGMENTS), has_time)
            else:
                run.stay(fragments, has_time, AWAKE_MS)
        return run.report

    def _bring_back(self, report: MoveReport) -> None:
        """File again what an earlier release could not read."""
        now_ms = self._clock.now_ms()
        if self._looked_aside_ms is not None and 0 <= now_ms - self._looked_aside_ms < _ASIDE_MS:
            return
        try:
            self._looked_aside_ms = None if self._timers.bring_back() else now_ms
        except Unavailable:
            report.refused += 1

    def tick(self, fragments: Iterable[int]) -> MoveReport:
        """Move what is due now in these fragments, whoever holds them."""
        with self._threads() as threads:
            run = _Run(
                timers=self._timers,
                ways=self._ways,
                clock=self._clock,
                owner="",
                threads=threads,
                patience_seconds=None,
            )
            run.tick(fragments)
        return run.report


class _Load(NamedTuple):
    """What goes together, and stays together where it cannot go."""

    kind: TimerKind
    shard: ShardKey
    keep_days: int


class _Seen(NamedTuple):
    """What a visit of a fragment found: timers that are due by `until_ms`, or none before `next_ms`."""

    next_ms: int
    look: Look | None = None
    until_ms: int = 0


class _Run:
    """One run. `_held` are its fragments, and when there is something to do in each; None: that must be asked."""

    def __init__(
        self,
        *,
        timers: Timers,
        ways: Ways,
        clock: Clock,
        owner: str,
        threads: Executor,
        patience_seconds: float | None = _PATIENCE_SECONDS,
    ) -> None:
        self.report = MoveReport()
        self._timers = timers
        self._ways = ways
        self._clock = clock
        self._owner = owner
        self._held: dict[int, int | None] = {}
        self._wanted: set[int] = set()  # what it may hold: what was given away stays away
        self._renewed_ms: dict[int, int] = {}
        self._takes: Beside[int, int | None] = Beside(threads, patience_seconds)
        self._visits: Beside[int, _Seen | None] = Beside(threads, patience_seconds)
        self._moves: Beside[_Load, MoveReport] = Beside(threads, patience_seconds)
        self._told: set[object] = set()
        self._began_ms = clock.now_ms()
        self._outgrown: set[int] = set()  # fragments with what only a later release can read

    def stay(self, fragments: Iterable[int], has_time: Callable[[], bool], awake_ms: int = 0) -> None:
        """Hold the fragments in which something is due soon, until nothing is, or there is no more time.

        Those that have nothing yet, or are somebody else's, are looked at again and again for the first `awake_ms`,
        and once more when that is over: whoever left them to us, or to him, may have stored a timer since.
        """
        self._wanted, awake_until_ms, is_looking = set(fragments), self._clock.now_ms() + awake_ms, True
        while True:
            if is_looking:
                is_looking = self._clock.now_ms() < awake_until_ms
                self._take(self._wanted - self._held.keys(), consistent=awake_ms > 0)
                is_looking = is_looking or bool(self._takes.under_way)
            if not self._held and not is_looking:
                return
            if not has_time():
                break
            if self._held:
                self._work()
            if self._held or is_looking:
                self._clock.sleep(self._pause())
        self.report.finished = self.report.finished and not self._held
        self._wanted.clear()
        self._give(list(self._held))

    def tick(self, fragments: Iterable[int]) -> None:
        """Move what is due now."""
        self.report.ticks = 1
        self._held = dict.fromkeys(fragments, self._clock.now_ms())
        self._drain(lambda: False)

    def _take(self, fragments: Iterable[int], *, consistent: bool) -> None:
        """Take those in which something is due soon. Who was woken looks consistently: its timer is new."""
        tries = {f: partial(self._try_to_take, f, consistent) for f in sorted(fragments)}
        times, refused_keys = self._results(self._takes.do(tries))
        self._held |= {f: next_ms for f, next_ms in times.items() if next_ms is not None}
        self._held |= dict.fromkeys(refused_keys)  # held or not, for all we know

    def _try_to_take(self, fragment: int, consistent: bool) -> int | None:
        next_ms = self._timers.next_ms(fragment, consistent=consistent)
        return next_ms if self._is_soon(next_ms) and self._hold(fragment) else None

    def _work(self) -> None:
        """Move what is due; give fragments to others where this took long."""
        long_ms = self._clock.now_ms() + _LONG_TICK_MS
        self.report.ticks += 1
        self._drain(lambda: self._clock.now_ms() >= long_ms)
        fragments = set(self._ours(self._held)[1::2]) if self._clock.now_ms() >= long_ms else set()
        fragments |= self._outgrown & self._held.keys()
        self._give(sorted(fragments))

    def _drain(self, is_enough: Callable[[], bool]) -> None:
        """Move what is due now, or until it is enough. The fragments go together, so that what belongs to one shard
        is one segment. What cannot be moved now hides nobody: behind it, more is looked at."""
        marks, stuck_loads = dict.fromkeys(self._held, ""), set[_Load]()
        while marks:
            now_ms = self._clock.now_ms()
            looks = self._visit(marks, now_ms)
            due_timers = [timer for look in looks.values() for timer in look.timers if timer.due_ms <= now_ms]
            self._held |= {f: _next_of(look, now_ms) for f, look in looks.items()}
            self._held |= self._move(sorted(due_timers, key=attrgetter("due_ms")), stuck_loads)
            if is_enough():
                return
            marks = {
                f: look.go_on_after
                for f, look in looks.items()
                if look.go_on_after and _is_full(look, now_ms)
            }

    def _visit(self, marks: Mapping[int, str], now_ms: int) -> dict[int, Look]:
        """What is due in the fragments behind their marks; what could not be asked is asked again later."""
        until_ms = now_ms + _SHORTEST_MS  # what comes next is mostly seen in the same look
        works = {f: partial(self._seen, f, self._held[f], mark, until_ms) for f, mark in marks.items()}
        visits, refused_keys = self._results(self._visits.do(works))
        self._held |= {
            f: now_ms + (_RETRY_MS if f in refused_keys else _STILL_MS) for f in marks if f not in visits
        }
        looks = {}
        for fragment, visit in visits.items():
            if visit is None:
                self._held.pop(fragment, None)
            elif visit.look and visit.until_ms == until_ms:
                looks[fragment] = visit.look
            elif fragment in self._held:
                self._held[fragment] = visit.next_ms
        return looks

    def _seen(self, fragment: int, due_ms: int | None, mark: str, until_ms: int) -> _Seen | None:
        """Visit a fragment; None: it is ours no more."""
        if not mark and self._owner and not self._is_renewed(fragment):
            return None
        if not mark and (due_ms is None or due_ms > until_ms):
            next_ms = self._timers.next_ms(fragment, consistent=True)
            if not self._is_soon(next_ms):
                next_ms = self._leave(fragment)
            if next_ms is None or next_ms > until_ms:
                return None if next_ms is None else _Seen(next_ms)
        return _Seen(until_ms, self._timers.look(fragment, until_ms, _PAGE, mark), until_ms)

    def _leave(self, fragment: int) -> int | None:
        """Let go of a fragment. Whoever stored a timer meanwhile met our lease and left it to us: look once more."""
        self._renewed_ms.pop(fragment, None)
        self._timers.let_go(fragment, self._owner)
        return self._try_to_take(fragment, consistent=True)

    def _is_renewed(self, fragment: int) -> bool:
        renewed_ms = self._renewed_ms.get(fragment)
        return (renewed_ms is not None and self._clock.now_ms() - renewed_ms < _RENEW_MS) or self._hold(
            fragment
        )

    def _hold(self, fragment: int) -> bool:
        now_ms = self._clock.now_ms()
        is_ours = self._timers.hold(fragment, self._owner, now_ms, now_ms + _LEASE_MS)
        if is_ours and fragment not in self._wanted:  # given away while this write was under way
            self._timers.let_go(fragment, self._owner)
            self._ways.hand_over([fragment])  # whoever was started meanwhile may have met our lease
            is_ours = False
        if is_ours:
            self._renewed_ms[fragment] = now_ms
        else:
            self._renewed_ms.pop(fragment, None)
        return is_ours

    def _ours(self, fragments: Iterable[int]) -> list[int]:
        """Those that this run has held for sure."""
        return [fragment for fragment in fragments if fragment in self._renewed_ms]

    def _give(self, fragments: Sequence[int]) -> None:
        """Let go of fragments in which more is due soon, and start a mover for those that were ours. For what nobody
        could ask the schedule starts one each minute: if each of those started the next, trouble would multiply them.
        """
        ours = self._ours(fragments)
        self._wanted.difference_update(fragments)  # before they are let go: see _hold
        for fragment in fragments:
            del self._held[fragment]
            self._renewed_ms.pop(fragment, None)
            try:
                self._timers.let_go(fragment, self._owner)
            except Unavailable:
                self.report.refused += 1  # its lease ends by itself
        if ours:
            self._ways.hand_over(ours)

    def _move(self, due_timers: Sequence[Timer], stuck_loads: set[_Load]) -> dict[int, int]:
        """Take timers, the earliest first, to where they belong, but none of what is stuck. For each fragment in which
        something stays: when to come again."""
        loads: defaultdict[_Load, list[Timer]] = defaultdict(list)
        for timer in due_timers:
            loads[_load_of(timer)].append(timer)
        if due_timers:
            self.report.late_ms = max(self.report.late_ms, self._clock.now_ms() - due_timers[0].due_ms)
        newer = [load for load in loads if load.kind is TimerKind.NEWER]
        if newer and self._clock.now_ms() - self._began_ms > _OUTLIVED_MS:
            # Whoever is started now is of the release that is deployed now, which may be able to read it.
            self._outgrown.update(timer.fragment for load in newer for timer in loads[load])
            stuck_loads.update(newer)
        works = {load: partial(self._carry, load, loads[load]) for load in loads if load not in stuck_loads}
        before = set(self._moves.under_way)
        finished_loads, refused_loads = self._harvest(self._moves.do(works))
        waiting_loads = loads.keys() - (finished_loads - before)
        stuck_loads |= waiting_loads
        now_ms = self._clock.now_ms()
        again_ms = {
            load: now_ms + (_RETRY_MS if load in refused_loads else _STILL_MS) for load in waiting_loads
        }
        return {timer.fragment: again_ms[load] for load in waiting_loads for timer in loads[load]}

    def _carry(self, load: _Load, timers: Sequence[Timer]) -> MoveReport:
        if load.kind is TimerKind.WAKE:
            self._ways.wake(timers)
            self._timers.drop(timers)
            return MoveReport(woken=len(timers))
        if load.kind is TimerKind.CHECK:
            return self._check(timers)
        if load.kind in UNREADABLE:
            self._ways.set_aside(timers)
            return MoveReport(set_aside=len(timers))
        return MoveReport(moved=self._ways.append(load.shard, timers[0].keep_days, timers))

    def _check(self, timers: Sequence[Timer]) -> MoveReport:
        """Producers may hang: they are asked by a function of its own."""
        later = [again(timer, self._clock.now_ms()) for timer in timers]
        self._timers.store(later)  # before anything else: a crash must not end a transaction's checks
        self._timers.drop(timers)
        self._ways.check(later)
        return MoveReport(checked=len(timers))

    def _harvest(self, futures: Mapping[_Load, Future[MoveReport]]) -> tuple[set[_Load], set[_Load]]:
        """Count what loads brought about; those that went, and those that were refused."""
        reports, refused_loads = self._results(futures)
        for report in reports.values():
            self.report.add(report)
        return set(reports), refused_loads

    def _results(self, futures: Mapping[K, Future[T]]) -> tuple[dict[K, T], set[K]]:
        """What work came to, and whose was refused. What nobody expected is told, once."""
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
            if not isinstance(error, Unavailable) and key not in self._told:
                self._told.add(key)
                self._ways.tell(str(key), error)
        return results, refused_keys

    def _is_soon(self, next_ms: int | None) -> bool:
        return next_ms is not None and next_ms <= self._clock.now_ms() + SOON_MS

    def _pause(self) -> float:
        """Seconds until there is something to do, at most one tick: nearer timers may be stored meanwhile."""
        now_ms = self._clock.now_ms()
        left_ms = min((due_ms or 0 for due_ms in self._held.values()), default=now_ms + SOON_MS) - now_ms
        return min(_TICK_SECONDS, max(_SHORTEST_MS, left_ms) / 1000)


def _load_of(timer: Timer) -> _Load:
    """Messages of one shard go together, whatever their topic's retention was when they came; a lane has no other."""
    return _Load(timer.kind, timer.shard, timer.keep_days if timer.kind is TimerKind.RETRY else 0)


def _is_full(look: Look, now_ms: int) -> bool:
    """May there be more that is due?"""
    return look.go_on_after is not None and look.timers[-1].due_ms <= now_ms


def _next_of(look: Look, now_ms: int) -> int | None:
    """When the fragment's next timer is due, once all that was due is gone; None: that must be asked."""
    if _is_full(look, now_ms):
        return now_ms
    return next((timer.due_ms for timer in look.timers if timer.due_ms > now_ms), None)
