"""What AWS runs around our functions beside API Gateway: schedules, the log's stream, asynchronous invocations."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from chalice.app import Chalice

from local.functions import Invocations, functions_of
from local.schedule import Schedules, schedules_of
from local.store import Poller

_READY_SECONDS = 5.0
_STOP_SECONDS = 5.0


class Triggers:
    """Runs an app's triggers from `start` to `stop`, in threads that a kill ends without harm."""

    def __init__(self, app: Chalice, invocations: Invocations, pollers: Sequence[Poller] = ()) -> None:
        """`pollers` carry the store's changes to the functions."""
        self._invocations = invocations
        # without pauses for further tries: the next run makes up for one that failed
        self._scheduled = Invocations(functions_of(app), pauses=())
        self._schedules = Schedules(schedules_of(app), self._scheduled.invoke)
        self._pollers = pollers
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start all; what is written afterwards reaches `route`."""
        for poller in self._pollers:
            self._begin("stream", poller.run)
        for poller in self._pollers:
            poller.wait_until_ready(_READY_SECONDS)
        self._begin("schedules", self._schedules.run)

    def stop(self, seconds: float = _STOP_SECONDS) -> None:
        """Stop all, and wait for what runs, so long at most."""
        deadline = time.monotonic() + seconds

        def seconds_left() -> float:
            return max(0.0, deadline - time.monotonic())

        self._schedules.stop()
        for poller in self._pollers:
            poller.stop()
        self._scheduled.stop(seconds_left())
        for thread in self._threads:
            thread.join(seconds_left())
        self._invocations.stop(seconds_left())

    def _begin(self, name: str, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()
