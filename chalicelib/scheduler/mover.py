"""The mover: moves timers that are due to where they belong, each exactly once.

Most timers become rows of the log, in the transaction that removes them. A run (mover_run.py) holds a lease on each of
its fragments, so that movers share the work instead of racing; safety never depends on it. A run that falls behind
gives half of its fragments to another run, and one whose time is up gives all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING

from ..domain.limits import FRAGMENTS
from ..domain.timer import AWAKE_MS
from ..ports.world import Clock
from .mover_run import MoveReport, MoverRun, Ways

if TYPE_CHECKING:
    from ..store.timers import Timers


class Mover:
    """Starts runs. One per process."""

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
        self._new_run = partial(MoverRun, timers=timers, ways=ways, clock=clock)
        self._new_owner = new_owner
        self._threads = threads

    def run_once(
        self, has_time: Callable[[], bool] = lambda: True, fragments: Iterable[int] | None = None
    ) -> MoveReport:
        """Move what is due, and stay while more is due soon.

        `fragments`: those in which a timer was just stored; None: all.
        """
        with self._threads() as threads:
            run = self._new_run(owner=self._new_owner(), threads=threads)
            if fragments is None:
                run.stay(range(FRAGMENTS), has_time)
            else:
                run.stay(fragments, has_time, AWAKE_MS)
        return run.report

    def tick(self, fragments: Iterable[int]) -> MoveReport:
        """Move what is due now in these fragments, without a lease on them."""
        with self._threads() as threads:
            run = self._new_run(owner="", threads=threads, patience_seconds=None)
            run.tick(fragments)
        return run.report
