"""The mover: moves timers that are due to where they belong, each exactly once.

Most timers become rows of the log, in the transaction that removes them. Runs are short: a wake-up of the mover's queue
starts one when timers are due, and the schedule starts one each minute. Several at once do no harm: the condition of
each removal decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING

from ..domain.timer import due_ms_of
from ..domain.times import SECOND_MS
from ..ports.world import Clock, Random
from .mover_run import HasTime, MoveReport, MoverRun, Ways

if TYPE_CHECKING:
    from ..domain.timer import FirstTimers
    from ..store.timers import Timers

HORIZON_MS = 75_000
"""The schedule sends the wake-ups for so long: its next run may be late."""
_LONG_BEFORE_MS = (
    900_000  # no queue delays a wake-up for longer, so none was sent for a timer stored before that
)
_MOST_AHEAD_MS = 1_000
_GATHER_SECONDS = 0.5
_MANY = 10  # wake-ups that start one run, at most


class Mover:
    """Starts runs. One per process."""

    def __init__(
        self,
        *,
        timers: Timers,
        ways: Ways,
        clock: Clock,
        random: Random,
        threads: Callable[[], Executor],
    ) -> None:
        self._new_run = partial(MoverRun, timers=timers, ways=ways, clock=clock, random=random)
        self._timers = timers
        self._ways = ways
        self._clock = clock
        self._threads = threads

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
            self._clock.sleep(_GATHER_SECONDS)
        wanted = list(self._timers.fragments() if fragments is None else fragments)
        now_ms = self._clock.now_ms()
        if until_ms > now_ms + _MOST_AHEAD_MS:  # the wake-up came too early by this clock
            self._ways.wake_at([(until_ms, wanted)])
        with self._threads() as threads:
            run = self._new_run(threads=threads)
            run.move(wanted, min(max(now_ms, until_ms), now_ms + _MOST_AHEAD_MS), has_time)
        return run.report

    def tick(self, has_time: HasTime = lambda: True) -> MoveReport:
        """The schedule's run: move what is due in all fragments, and send the wake-ups of timers that were stored long
        before their time."""
        with self._threads() as threads:
            run = self._new_run(threads=threads)
            looks = run.move(self._timers.fragments(), self._clock.now_ms(), has_time, HORIZON_MS)
        end_ms = self._clock.now_ms() + HORIZON_MS
        self._ways.wake_at([wake for fragment in looks for wake in _wakes(fragment, looks[fragment], end_ms)])
        return run.report


def _wakes(fragment: int, look: FirstTimers, end_ms: int) -> Iterable[tuple[int, list[int]]]:
    """When a fragment needs the mover. What is behind a full look is not read: it may be due in any second."""
    for timer in look.timers:
        if timer.due_ms - timer.stored_ms > _LONG_BEFORE_MS:
            yield timer.due_ms, [fragment]
    if look.go_on_after is not None:
        first_ms = due_ms_of(look.go_on_after)
        yield from ((at_ms, [fragment]) for at_ms in range(first_ms, end_ms, SECOND_MS))
