"""The mover: takes timers that are due to where they belong, each exactly once.

Most timers become rows of the log, in the transaction that removes them. A run holds a lease per fragment, so that
movers share the work instead of racing; safety never depends on it. A run that falls behind gives half of its fragments
to another, and one whose time is up all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from operator import attrgetter

from ..domain.errors import Unavailable
from ..domain.limits import FRAGMENTS
from ..domain.segment import ShardKey
from ..domain.timer import Timer, TimerKind, again
from ..ports import Clock, Timers

SOON_MS = 60_000  # until the next scheduled run
_LEASE_MS = 15_000
_RENEW_MS = 5_000
_TICK_SECONDS = 1.0
_SHORTEST_MS = 50  # what is due within it goes together
_LONG_TICK_MS = 1_000  # a mover whose tick takes longer is behind, and shares its fragments
_PAGE = 250  # of one fragment
_LARGEST_PAGE = 4_000

Append = Callable[[ShardKey, int, Sequence[Timer]], int]
"""Put the drafts of timers into a shard, to be kept for so many days, taking the timers away; how many went."""
Wake = Callable[[Sequence[Timer]], None]
"""Start the deliveries that WAKE timers stand for."""
Check = Callable[[Sequence[Timer]], None]
"""Start the checks of transactions; each timer is at its next time already."""
HandOver = Callable[[Sequence[int]], None]
"""Start another mover for these fragments."""


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
    """Moves what is due."""

    def __init__(
        self,
        timers: Timers,
        append: Append,
        wake: Wake,
        check: Check,
        hand_over: HandOver,
        clock: Clock,
        new_owner: Callable[[], str],
    ) -> None:
        """`new_owner` makes a name for the leases of each run: a process may have several at once."""
        self._timers = timers
        self._append = append
        self._wake = wake
        self._check = check
        self._hand_over = hand_over
        self._clock = clock
        self._new_owner = new_owner

    def run_once(
        self, has_time: Callable[[], bool] = lambda: True, fragments: Iterable[int] | None = None
    ) -> Report:
        """Move what is due, and stay while more is due before the next scheduled run.

        `fragments` are those that somebody has just filed a timer in; None: look at all.
        """
        report, owner = Report(), self._new_owner()
        wanted = list(range(FRAGMENTS) if fragments is None else fragments)
        # Who was woken looks consistently: its timer is new.
        nearest = {f: self._timers.next_ms(f, consistent=fragments is not None) for f in wanted}
        held = [f for f in wanted if self._is_soon(nearest[f]) and self._hold(f, owner)]
        renewed_ms = self._clock.now_ms()
        while held and has_time():
            now_ms = self._clock.now_ms()
            if now_ms - renewed_ms >= _RENEW_MS:
                held = [f for f in held if self._hold(f, owner)]
                renewed_ms = now_ms
            report.ticks += 1
            is_behind = partial(self._is_due, now_ms + _LONG_TICK_MS)
            nearest = self._drain({f: nearest[f] for f in held}, report, is_behind)
            if is_behind():
                held = self._share(held, owner)
            held = [f for f in held if self._is_soon(nearest[f]) or not self._leave(f, owner)]
            if held:
                self._clock.sleep(self._pause([nearest[f] for f in held]))
        report.finished = report.finished and not held
        self._give(held, owner)
        return report

    def tick(self, fragments: Iterable[int]) -> Report:
        """Move what is due now in these fragments, whoever holds them."""
        report = Report(ticks=1)
        self._drain(dict.fromkeys(fragments), report)
        return report

    def _drain(
        self,
        nearest: Mapping[int, int | None],
        report: Report,
        is_enough: Callable[[], bool] = lambda: False,
    ) -> dict[int, int | None]:
        """Move what is due now, or until it is enough; `nearest` tells when each fragment's next timer was due, and
        then is. The fragments go together, so that what belongs to one shard is one segment. What cannot be moved now
        hides nobody: behind it, more is looked at."""
        nearest = {f: due_ms if self._is_near(due_ms) else self._next_ms(f) for f, due_ms in nearest.items()}
        pages = {f: _PAGE for f, due_ms in nearest.items() if self._is_near(due_ms)}
        while pages:
            until_ms = self._clock.now_ms() + _SHORTEST_MS  # what comes next is mostly seen in the same look
            found = {f: self._timers.due(f, until_ms, page) for f, page in pages.items()}
            now_ms = self._clock.now_ms()
            due = [timer for timer in chain.from_iterable(found.values()) if timer.due_ms <= now_ms]
            all_went = self._move(sorted(due, key=attrgetter("due_ms")), report)
            full = {
                f: page
                for f, page in pages.items()
                if len(found[f]) >= page and found[f][-1].due_ms <= now_ms
            }
            nearest |= {f: now_ms if f in full else self._after(now_ms, f, found[f]) for f in found}
            if is_enough():
                break
            pages = {f: page if all_went else 2 * page for f, page in full.items() if page < _LARGEST_PAGE}
        return nearest

    def _after(self, now_ms: int, fragment: int, found: Sequence[Timer]) -> int | None:
        """When a fragment's next timer is due, if all that was due until now is among those found."""
        later = (timer.due_ms for timer in found if timer.due_ms > now_ms)
        return next(later, None) or self._next_ms(fragment)

    def _share(self, held: list[int], owner: str) -> list[int]:
        """Give every other fragment to another mover; which stay."""
        self._give(held[1::2], owner)
        return held[::2]

    def _give(self, fragments: Sequence[int], owner: str) -> None:
        """Let go of fragments in which more is due soon, and start a mover for them."""
        for fragment in fragments:
            self._timers.let_go(fragment, owner)
        if fragments:
            self._hand_over(fragments)

    def _leave(self, fragment: int, owner: str) -> bool:
        """Let go of a fragment. Whoever filed a timer meanwhile met our lease and left it to us: look once more."""
        self._timers.let_go(fragment, owner)
        return not self._is_soon(self._next_ms(fragment)) or not self._hold(fragment, owner)

    def _move(self, due: Sequence[Timer], report: Report) -> bool:
        """Take timers, the earliest first, to where they belong; whether all went. What the store refuses now stays
        for later."""
        by_shard: defaultdict[tuple[ShardKey, int], list[Timer]] = defaultdict(list)
        wakes = [timer for timer in due if timer.kind is TimerKind.WAKE]
        for timer in due:
            if timer.kind in (TimerKind.RETRY, TimerKind.DELIVER):
                by_shard[timer.shard, timer.keep_days].append(timer)
        if due:
            report.late_ms = max(report.late_ms, self._clock.now_ms() - due[0].due_ms)
        all_went = True
        for (shard, keep_days), timers in by_shard.items():
            try:
                report.moved += self._append(shard, keep_days, timers)
            except Unavailable:
                report.finished = all_went = False
        if wakes:
            self._wake(wakes)
            self._timers.drop(wakes)
            report.woken += len(wakes)
        checks = [timer for timer in due if timer.kind is TimerKind.CHECK]
        self._check_all(checks, report)
        return all_went

    def _check_all(self, checks: Sequence[Timer], report: Report) -> None:
        """Producers may hang: they are asked by a function of its own."""
        if not checks:
            return
        later = [again(timer, self._clock.now_ms()) for timer in checks]
        self._timers.file(later)  # before anything else: a crash must not end a transaction's checks
        self._timers.drop(checks)
        self._check(later)
        report.checked += len(checks)

    def _hold(self, fragment: int, owner: str) -> bool:
        now_ms = self._clock.now_ms()
        return self._timers.hold(fragment, owner, now_ms, now_ms + _LEASE_MS)

    def _next_ms(self, fragment: int) -> int | None:
        return self._timers.next_ms(fragment, consistent=True)

    def _is_near(self, due_ms: int | None) -> bool:
        return due_ms is not None and due_ms <= self._clock.now_ms() + _SHORTEST_MS

    def _is_due(self, due_ms: int | None) -> bool:
        return due_ms is not None and due_ms <= self._clock.now_ms()

    def _is_soon(self, next_ms: int | None) -> bool:
        return next_ms is not None and next_ms <= self._clock.now_ms() + SOON_MS

    def _pause(self, nearest: Sequence[int | None]) -> float:
        """Seconds until the next timer is due, at most one tick: nearer ones may be filed meanwhile."""
        left_ms = min((n for n in nearest if n is not None), default=0) - self._clock.now_ms()
        return min(_TICK_SECONDS, max(_SHORTEST_MS, left_ms) / 1000)
