"""What AWS runs around our functions beside API Gateway: schedules (EventBridge's part), the log's stream, asynchronous
invocations."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from chalice.app import Chalice, Rate, ScheduledEventConfig

from local.functions import Invocations
from local.stream import StreamPoller

_READY_SECONDS = 5.0
_STOP_SECONDS = 5.0
_SECONDS = {Rate.MINUTES: 60, Rate.HOURS: 3600, Rate.DAYS: 86400}


@contextmanager
def triggers(app: Chalice, invocations: Invocations, pollers: Sequence[StreamPoller] = ()) -> Iterator[None]:
    """Run an app's triggers meanwhile, in threads that a kill ends without harm. `pollers` carry the store's changes to
    the functions. At the end, wait for what runs, so long at most."""
    threads = [threading.Thread(target=each.run, name="stream", daemon=True) for each in pollers]
    for thread in threads:
        thread.start()
    try:
        for poller in pollers:  # what is written from now on reaches `route`
            poller.wait_until_ready(_READY_SECONDS)
        for function, period in schedules_of(app):
            invocations.every(period, function)
        yield
    finally:
        deadline = time.monotonic() + _STOP_SECONDS
        for poller in pollers:
            poller.stop()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        invocations.stop(max(0.0, deadline - time.monotonic()))


def schedules_of(app: Chalice) -> list[tuple[str, int]]:
    """An app's scheduled functions, and how many seconds lie between their runs: their schedules are rates."""
    sources: list[Any] = [each for each in app.event_sources if isinstance(each, ScheduledEventConfig)]
    rates: list[tuple[str, Rate]] = [(each.name, each.schedule_expression) for each in sources]
    return [(name, rate.value * _SECONDS[rate.unit]) for name, rate in rates]
