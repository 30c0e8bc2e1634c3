"""What AWS runs around our functions beside API Gateway: schedules (EventBridge's part), the log's stream, asynchronous
invocations."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from chalice.app import Chalice, Rate, ScheduledEventConfig

from local.functions import Invocations
from local.stream import StreamPoller

_READY_SECONDS = 5.0
_STOP_SECONDS = 5.0
_SECONDS = {Rate.MINUTES: 60, Rate.HOURS: 3600, Rate.DAYS: 86400}


class Triggers:
    """Runs an app's triggers from `start` to `stop`, in threads that a kill ends without harm. `pollers` carry the
    store's changes to the functions."""

    def __init__(self, app: Chalice, invocations: Invocations, pollers: Sequence[StreamPoller] = ()) -> None:
        self._invocations, self._pollers = invocations, pollers
        self._schedules = schedules_of(app)
        self._threads = [threading.Thread(target=each.run, name="stream", daemon=True) for each in pollers]

    def start(self) -> None:
        """Start all; what is written afterwards reaches `route`."""
        for thread in self._threads:
            thread.start()
        for poller in self._pollers:
            poller.wait_until_ready(_READY_SECONDS)
        for function, seconds in self._schedules:
            self._invocations.every(seconds, function)

    def stop(self, seconds: float = _STOP_SECONDS) -> None:
        """Stop all, and wait for what runs, so long at most."""
        deadline = time.monotonic() + seconds
        for poller in self._pollers:
            poller.stop()
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._invocations.stop(max(0.0, deadline - time.monotonic()))


def schedules_of(app: Chalice) -> list[tuple[str, int]]:
    """An app's scheduled functions, and how many seconds lie between their runs: their schedules are rates."""
    sources: list[Any] = [each for each in app.event_sources if isinstance(each, ScheduledEventConfig)]
    rates: list[tuple[str, Rate]] = [(each.name, each.schedule_expression) for each in sources]
    return [(name, rate.value * _SECONDS[rate.unit]) for name, rate in rates]
