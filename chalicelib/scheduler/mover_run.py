"""One run of the mover: it holds fragments, moves what is due in them, and gives them back.

Fragments are looked at, and shards moved to, beside one another. What the store refuses, or takes long for, is left for
later and delays no other; in its shard, later timers wait for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ..domain.errors import Unavailable, Unreadable
from ..domain.segment import ShardKey
from ..domain.timer import SOON_MS, FirstTimers, Timer, TimerKind, next_check
from ..ports.world import Clock
from .beside import Beside
from .foreign_leases import LEASE_MS, RENEW_MS, ForeignLeases

if TYPE_CHECKING:
    from ..store.timers import Timers


_TICK_SECONDS = 1.0
_SHORTEST_MS = 50  # what is due within it goes together
_LONG_TICK_MS = 1_000  # a mover whose tick takes longer is behind, and shares its fragments
_RETRY_MS = 1_000  # after a refusal
_STILL_MS = 250  # beside work that goes on
_PATIENCE_SECONDS = 1.0  # of real time: what takes longer is left to itself
_PAGE = 250  # of one fragment
_CHECKS_TOGETHER = 25

K = TypeVar("K")
T = TypeVar("T")

Append = Callable[[ShardKey, int | float, Sequence[Timer]], int]
"""Move the drafts of timers into a shard's log, to be kept for so many days. Returns how many were moved."""
Wake = Callable[[Sequence[Timer]], None]
"""Start the deliveries that WAKE timers stand for. Raises Unavailable if that fails."""
Check = Callable[[Sequence[Timer]], None]
"""Start the checks of transactions, whose timers have been stored with their next time. Raises Unavailable if that
fails."""
HandOver = Callable[[Sequence[int]], object]
"""Start another mover for these fragments."""
Tell = Callable[[str, BaseException], None]
"""Report an unexpected error, with the fragment or the shard where it happened."""


@dataclass(slots=True)
class MoveReport:
    """What one run did. `late_ms`: the greatest lateness of a timer that it moved. `refused`: how many calls of the
    store or of a function failed."""

    moved: int = 0
    woken: int = 0
    checked: int = 0
    late_ms: int = 0
    refused: int = 0
    ticks: int = 0
    finished: bool = True

    def add(self, other: MoveReport) -> None:
        """Add the counts of one load."""
        self.moved += other.moved
        self.woken += other.woken
        self.checked += other.checked

    def as_dict(self) -> dict[str, int | bool]:
        """The counts as JSON, for the function's log line."""
        return asdict(self)


@dataclass(kw_only=True, frozen=True, slots=True)
class Ways:
    """What the mover may do with timers that are due, one function for each kind."""

    append: Append
    wake: Wake
    check: Check
    hand_over: HandOver
    tell: Tell


class _Load(NamedTuple):
    """Timers that are moved together: of one kind and one shard. If the move fails, all of them stay."""

    kind: TimerKind
    shard: ShardKey
    keep_days: int | float


class _Visit(NamedTuple):
    """The result of a visit to a fragment: `look`, the timers that are due by `until_ms`; or None, and `next_ms`, the
    time of the next one."""

    next_ms: int
    look: FirstTimers | None = None
    until_ms: int = 0


class MoverRun:
    """One run. `_held`: the fragments that it holds, each with the time of its next timer (None: not known)."""

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
        self._foreign_leases = ForeignLeases()
        self._takes: Beside[int, int | None] = Beside(threads, patience_seconds)
        self._visits: Beside[int, _Visit | None] = Beside(threads, patience_seconds)
        self._moves: Beside[_Load, MoveReport] = Beside(threads, patience_seconds)
        self._told: set[object] = set()
        self._stuck: dict[_Load, set[int]] = {}  # what the last drain could not move, and in which fragments
        self._reached: dict[int, str] = {}  # how far it came in these, where it had no more time

    def stay(self, fragments: Iterable[int], has_time: Callable[[], bool], awake_ms: int = 0) -> None:
        """Hold the fragments in which something is due soon, until nothing is, or time is up.

        Fragments without such a timer, or held by another run, are looked at repeatedly in the first `awake_ms`, and
        once more after that: the process that woke this run may have stored its timer meanwhile. The holder may have
        died; if it does not renew its lease in time, the fragment is looked at when the lease ends.
        """
        self._wanted, awake_until_ms, is_looking = set(fragments), self._clock.now_ms() + awake_ms, True
        while True:
            now_ms = self._clock.now_ms()
            candidates = self._wanted if is_looking else self._foreign_leases.take_due(now_ms) & self._wanted
            # A look that is still under way may have begun before the timer was stored.
            is_looking &= now_ms < awake_until_ms or bool(self._takes.under_way)
            self._take(candidates - self._held.keys(), consistent=awake_ms > 0)
            is_looking = is_looking or bool(self._takes.under_way)
            if not self._held and not is_looking and not self._foreign_leases:
                return
            if not has_time():
                break
            if self._held:
                self._work()
            if self._held or is_looking or self._foreign_leases:
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
        """Hold the fragments in which something is due soon. `consistent`: a timer has just been stored, and must be
        seen."""
        tries = {f: partial(self._try_to_take, f, consistent) for f in sorted(fragments)}
        times, refused_keys = self._results(self._takes.do(tries))
        self._held |= {f: next_ms for f, next_ms in times.items() if next_ms is not None}
        self._held |= dict.fromkeys(refused_keys)  # held or not, for all we know

    def _try_to_take(self, fragment: int, consistent: bool) -> int | None:
        next_ms = self._timers.next_ms(fragment, consistent=consistent)
        if not self._is_soon(next_ms):
            self._foreign_leases.stop(fragment)
            return None
        return next_ms if self._acquire_lease(fragment) else None

    def _work(self) -> None:
        """Move what is due; give fragments to others where this took long."""
        long_ms = self._clock.now_ms() + _LONG_TICK_MS
        self.report.ticks += 1
        self._drain(lambda: self._clock.now_ms() >= long_ms)
        self._give(sorted(self._ours(self._held)[1::2]) if self._clock.now_ms() >= long_ms else [])

    def _drain(self, is_enough: Callable[[], bool]) -> None:
        """Move what is due now, until `is_enough`. All fragments are moved together, so that timers of one shard
        become one segment. Timers that cannot be moved now don't hide those after them: the next page is read, too, if
        not now, then by the next drain."""
        positions, reached, stuck_before = dict.fromkeys(self._held, ""), self._reached, self._stuck
        self._stuck = {}
        while positions:
            now_ms = self._clock.now_ms()
            looks = self._visit(positions, now_ms)
            due_timers = [timer for look in looks.values() for timer in look.timers if timer.due_ms <= now_ms]
            self._held |= {f: _next_of(look, now_ms) for f, look in looks.items()}
            self._held |= self._move(sorted(due_timers, key=attrgetter("due_ms")))
            positions = {
                f: look.go_on_after
                for f, look in looks.items()
                if look.go_on_after and _is_full(look, now_ms)
            }
            leaps = self._leaps(positions, reached, stuck_before)
            positions, reached = positions | leaps, {}
            if is_enough() and not leaps:
                break
        self._reached = positions if self._stuck else {}

    def _leaps(
        self, positions: Mapping[int, str], reached: Mapping[int, str], stuck_before: Mapping[_Load, set[int]]
    ) -> dict[int, str]:
        """Where to go on in fragments in which a load is still stuck: where the last drain left off. Nothing of what
        was stuck then is moved behind that."""
        still_stuck = self._stuck.keys() & stuck_before.keys()
        fragments = {fragment for load in still_stuck for fragment in stuck_before[load]}
        leaps = {f: reached[f] for f in fragments & reached.keys() if reached[f] > positions.get(f, "~")}
        for load, met_in in stuck_before.items():
            if leapt := met_in & leaps.keys():
                self._stuck.setdefault(load, set()).update(leapt)
        return leaps

    def _visit(self, positions: Mapping[int, str], now_ms: int) -> dict[int, FirstTimers]:
        """The timers that are due in the fragments behind their positions. A fragment that could not be read is read
        again later."""
        until_ms = now_ms + _SHORTEST_MS  # what comes next is mostly seen in the same look
        tasks = {
            f: partial(self._visit_fragment, f, self._held[f], position, until_ms)
            for f, position in positions.items()
        }
        visits, refused_keys = self._results(self._visits.do(tasks))
        self._held |= {
            f: now_ms + (_RETRY_MS if f in refused_keys else _STILL_MS) for f in positions if f not in visits
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

    def _visit_fragment(
        self, fragment: int, due_ms: int | None, position: str, until_ms: int
    ) -> _Visit | None:
        """Visit a fragment; None: it is ours no more."""
        if self._owner and not self._is_renewed(fragment):
            return None
        if not position and (due_ms is None or due_ms > until_ms):
            next_ms = self._timers.next_ms(fragment, consistent=True)
            if not self._is_soon(next_ms):
                next_ms = self._leave(fragment)
            if next_ms is None or next_ms > until_ms:
                return None if next_ms is None else _Visit(next_ms)
        return _Visit(until_ms, self._timers.first_due(fragment, until_ms, _PAGE, position), until_ms)

    def _leave(self, fragment: int) -> int | None:
        """Release a fragment. A process that stored a timer meanwhile saw our lease and started no run, so look once
        more."""
        self._renewed_ms.pop(fragment, None)
        self._timers.release_lease(fragment, self._owner)
        return self._try_to_take(fragment, consistent=True)

    def _is_renewed(self, fragment: int) -> bool:
        renewed_ms = self._renewed_ms.get(fragment)
        return (
            renewed_ms is not None and self._clock.now_ms() - renewed_ms < RENEW_MS
        ) or self._acquire_lease(fragment)

    def _acquire_lease(self, fragment: int) -> bool:
        now_ms = self._clock.now_ms()
        foreign_until_ms = self._timers.acquire_lease(fragment, self._owner, now_ms, now_ms + LEASE_MS)
        is_ours = foreign_until_ms is None
        if is_ours and fragment not in self._wanted:  # given away while this write was under way
            self._timers.release_lease(fragment, self._owner)
            self._ways.hand_over([fragment])  # a run started meanwhile may have met our lease
            is_ours = False
        if is_ours:
            self._renewed_ms[fragment] = now_ms
            self._foreign_leases.forget(fragment)
        else:
            self._renewed_ms.pop(fragment, None)
        if foreign_until_ms is not None and fragment in self._wanted:
            self._foreign_leases.meet(fragment, foreign_until_ms, now_ms)
        return is_ours

    def _ours(self, fragments: Iterable[int]) -> list[int]:
        """Those that this run has held for sure."""
        return [fragment for fragment in fragments if fragment in self._renewed_ms]

    def _give(self, fragments: Sequence[int]) -> None:
        """Release fragments in which more is due soon, and start another run for those that this run has held. For a
        fragment whose lease could not be read, the schedule starts a run each minute; if each of these started the
        next one, runs would multiply while the store fails."""
        ours = self._ours(fragments)
        self._wanted.difference_update(fragments)  # before they are let go: see _acquire_lease
        for fragment in fragments:
            del self._held[fragment]
            self._renewed_ms.pop(fragment, None)
            self._foreign_leases.stop(fragment)
            try:
                self._timers.release_lease(fragment, self._owner)
            except Unavailable:
                self.report.refused += 1  # its lease ends by itself
        if ours:
            self._ways.hand_over(ours)

    def _move(self, due_timers: Sequence[Timer]) -> dict[int, int]:
        """Move timers, the earliest first, except loads that are stuck. Returns, for each fragment in which
        something stays, when to look again."""
        loads: defaultdict[_Load, list[Timer]] = defaultdict(list)
        for timer in due_timers:
            loads[_load_of(timer)].append(timer)
        if due_timers:
            self.report.late_ms = max(self.report.late_ms, self._clock.now_ms() - due_timers[0].due_ms)
        tasks = {load: partial(self._carry, load, loads[load]) for load in loads if load not in self._stuck}
        before = set(self._moves.under_way)
        finished_loads, refused_loads = self._harvest(self._moves.do(tasks))
        waiting_loads = loads.keys() - (finished_loads - before)
        for load in waiting_loads:
            self._stuck.setdefault(load, set()).update(timer.fragment for timer in loads[load])
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
        return MoveReport(moved=self._ways.append(load.shard, timers[0].keep_days, timers))

    def _check(self, timers: Sequence[Timer]) -> MoveReport:
        """Producers may hang: they are asked by a function of its own."""
        later = [next_check(timer, self._clock.now_ms()) for timer in timers]
        self._timers.store(later)  # before anything else: a crash must not end a transaction's checks
        for start in range(0, len(timers), _CHECKS_TOGETHER):
            part = slice(start, start + _CHECKS_TOGETHER)
            self._ways.check(later[part])  # if it is refused, those before it are not started again
            self._timers.drop(timers[part])
        return MoveReport(checked=len(timers))

    def _harvest(self, futures: Mapping[_Load, Future[MoveReport]]) -> tuple[set[_Load], set[_Load]]:
        """Add the counts of loads that were moved. Returns the loads that were moved, and those that failed."""
        reports, refused_loads = self._results(futures)
        for report in reports.values():
            self.report.add(report)
        return set(reports), refused_loads

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
                self._ways.tell(str(key), error)
        return results, refused_keys

    def _is_soon(self, next_ms: int | None) -> bool:
        return next_ms is not None and next_ms <= self._clock.now_ms() + SOON_MS

    def _pause(self) -> float:
        """Seconds until there is something to do, at most one tick: nearer timers may be stored meanwhile."""
        now_ms = self._clock.now_ms()
        times_ms = [due_ms or 0 for due_ms in self._held.values()]
        if (look_ms := self._foreign_leases.next_look_ms()) is not None:
            times_ms.append(look_ms)
        left_ms = min(times_ms, default=now_ms + SOON_MS) - now_ms
        return min(_TICK_SECONDS, max(_SHORTEST_MS, left_ms) / 1000)


def _load_of(timer: Timer) -> _Load:
    """The load that a timer belongs to. Messages of one shard go together, even if the topic's retention changed."""
    return _Load(timer.kind, timer.shard, timer.keep_days if timer.kind is TimerKind.RETRY else 0)


def _is_full(look: FirstTimers, now_ms: int) -> bool:
    """May there be more that is due?"""
    return look.go_on_after is not None and look.timers[-1].due_ms <= now_ms


def _next_of(look: FirstTimers, now_ms: int) -> int | None:
    """When the fragment's next timer is due, once all that was due is gone; None: that must be asked."""
    if _is_full(look, now_ms):
        return now_ms
    return next((timer.due_ms for timer in look.timers if timer.due_ms > now_ms), None)
