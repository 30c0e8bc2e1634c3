"""The mover: takes timers that are due to where they belong, each exactly once.

Most timers become rows of the log, in the transaction that removes them. A run holds a lease per fragment, so that
movers share the work instead of racing; safety never depends on it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

from ..domain.limits import FRAGMENTS
from ..domain.segment import ShardKey
from ..domain.timer import Timer, TimerKind, again
from ..ports import Clock, Timers

SOON_MS = 60_000  # until the next scheduled run
_LEASE_MS = 15_000
_RENEW_MS = 5_000
_TICK_SECONDS = 1.0
_PAGE = 500

Append = Callable[[ShardKey, int, Sequence[Timer]], int]
"""Put the drafts of timers into a shard, to be kept for so many days, taking the timers away; how many went."""
Wake = Callable[[Sequence[Timer]], None]
"""Start the deliveries that WAKE timers stand for."""
Check = Callable[[Sequence[Timer]], None]
"""Start the checks of transactions; each timer is at its next time already."""


@dataclass(slots=True)
class Report:
    """What one run did. `late_ms` is the greatest lateness of a timer it moved."""

    moved: int = 0
    woken: int = 0
    checked: int = 0
    late_ms: int = 0
    ticks: int = 0
    finished: bool = True

    def as_dict(self) -> dict[str, int | bool]:
        return asdict(self)


class Mover:
    """One process's mover."""

    def __init__(
        self, timers: Timers, append: Append, wake: Wake, check: Check, clock: Clock, owner: str
    ) -> None:
        """`owner` names this process in the leases."""
        self._timers = timers
        self._append = append
        self._wake = wake
        self._check = check
        self._clock = clock
        self._owner = owner

    def run_once(
        self, has_time: Callable[[], bool] = lambda: True, fragments: Iterable[int] | None = None
    ) -> Report:
        """Move what is due, and stay while more is due before the next scheduled run.

        `fragments` are those that somebody has just filed a timer in; None: look at all.
        """
        report = Report()
        wanted = list(range(FRAGMENTS) if fragments is None else fragments)
        soon = [f for f in wanted if self._is_soon(f, consistent=fragments is not None)]
        held = [f for f in soon if self._hold(f)]
        renewed_ms = self._clock.now_ms()
        while held:
            if self._clock.now_ms() - renewed_ms >= _RENEW_MS:
                held = [f for f in held if self._hold(f)]
                renewed_ms = self._clock.now_ms()
            self.tick(held, report)
            for fragment in [f for f in held if not self._is_soon(f)]:
                self._timers.let_go(fragment, self._owner)
                # Whoever filed a timer meanwhile met our lease and left it to us.
                if not self._is_soon(fragment) or not self._hold(fragment):
                    held.remove(fragment)
            if held and not has_time():
                report.finished = False
                break
            if held:
                self._clock.sleep(self._pause(held))
        for fragment in held:
            self._timers.let_go(fragment, self._owner)
        return report

    def tick(self, fragments: Iterable[int], report: Report | None = None) -> Report:
        """Move what is due now in these fragments."""
        report = report or Report()
        report.ticks += 1
        for fragment in fragments:
            while due := self._timers.due(fragment, self._clock.now_ms(), _PAGE):
                self._move(due, report)
                if len(due) < _PAGE:
                    break
        return report

    def _move(self, due: Sequence[Timer], report: Report) -> None:
        by_shard: defaultdict[tuple[ShardKey, int], list[Timer]] = defaultdict(list)
        wakes = [timer for timer in due if timer.kind is TimerKind.WAKE]
        for timer in due:
            if timer.kind in (TimerKind.RETRY, TimerKind.DELIVER):
                by_shard[timer.shard, timer.keep_days].append(timer)
        report.late_ms = max(report.late_ms, self._clock.now_ms() - due[0].due_ms)
        for (shard, keep_days), timers in by_shard.items():
            report.moved += self._append(shard, keep_days, timers)
        if wakes:
            self._wake(wakes)
            self._timers.drop(wakes)
            report.woken += len(wakes)
        self._check_all([timer for timer in due if timer.kind is TimerKind.CHECK], report)

    def _check_all(self, checks: Sequence[Timer], report: Report) -> None:
        """Producers may hang: they are asked by a function of its own."""
        if not checks:
            return
        later = [again(timer, self._clock.now_ms()) for timer in checks]
        self._timers.file(later)  # before anything else: a crash must not end a transaction's checks
        self._timers.drop(checks)
        self._check(later)
        report.checked += len(checks)

    def _hold(self, fragment: int) -> bool:
        now_ms = self._clock.now_ms()
        return self._timers.hold(fragment, self._owner, now_ms, now_ms + _LEASE_MS)

    def _is_soon(self, fragment: int, *, consistent: bool = True) -> bool:
        next_ms = self._timers.next_ms(fragment, consistent=consistent)
        return next_ms is not None and next_ms <= self._clock.now_ms() + SOON_MS

    def _pause(self, held: Sequence[int]) -> float:
        """Seconds until the next timer is due, at most one tick: nearer ones may be filed meanwhile."""
        nearest = [n for f in held if (n := self._timers.next_ms(f, consistent=True)) is not None]
        left_ms = min(nearest, default=0) - self._clock.now_ms()
        return max(0.001, min(_TICK_SECONDS, left_ms / 1000))
