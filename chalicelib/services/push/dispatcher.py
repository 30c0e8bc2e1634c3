"""Push delivery: starts a run for a task, or wakes the one that this process already has (`run.py`).

Called by `functions.deliver`, the Lambda function that a wake-up starts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from ...domain.assignment import Team
from ...domain.errors import NotFound
from ...domain.topic import cursor_key
from ..core.wake import NO_NEWS, DispatchTask, News, as_pushed
from .run import DispatchReport, DispatchRun
from .sources import DispatchContext, Sources


@dataclass(frozen=True)
class Dispatcher:
    """Runs deliveries. A process has one run for a task; a second call only wakes the first one's run."""

    context: DispatchContext
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _running: dict[DispatchTask, DispatchRun] = field(default_factory=dict)

    def deliver(
        self, task: DispatchTask, seconds_left: Callable[[], float], news: News = NO_NEWS
    ) -> DispatchReport:
        """Deliver until there is nothing left to claim. If time ends first, the task is started again.

        No attempt begins that could not end, with its settlement, within `seconds_left()`. If time did not end first,
        raises Unavailable if the store is not available.
        """
        self._hear(task, news)
        run = DispatchRun(self.context, task, seconds_left, news)
        with self._lock:
            if self._running.setdefault(task, run) is not run:
                self._running[task].wake(news)
                return DispatchReport()
        try:
            run.until_drained()
            while not self._may_end(run):
                run.until_drained()
        except BaseException:
            del self._running[task]
            raise
        run.leave()
        return run.report

    def _hear(self, task: DispatchTask, news: News) -> None:
        """Read the group and its cursors again, if the wake-up says that it changed."""
        claimer, catalog = self.context.claimer, self.context.catalog
        claimer.reader.expect_rows(news.last)
        if not news.changed:
            return
        try:
            topic = catalog.topic(task.topic, consistent=True)
            group = catalog.group(topic, task.group, consistent=True)
        except NotFound:
            return
        sources = Sources(topic, as_pushed(group, catalog.consumers(topic, group)), task, Team((), ()))
        for shard in sources.in_turn(0, sources.most):
            claimer.states.read(cursor_key(topic, group, shard, task.consumer_uid))

    def _may_end(self, run: DispatchRun) -> bool:
        """End the run unless it was woken since its last look; False: it was. After the end, a wake-up starts a new
        run."""
        with self._lock:
            if run.report.finished and run.was_woken():
                return False
            del self._running[run.task]
            return True
