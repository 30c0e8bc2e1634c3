"""What AWS runs around our functions beside API Gateway: schedules (EventBridge's part), the log's stream, asynchronous
invocations."""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from chalice.app import Chalice, Rate, ScheduledEventConfig

from local.functions import Function, Invocations, functions_of
from local.stream import StreamPoller

_READY_SECONDS = 5.0
_STOP_SECONDS = 5.0
_EXPIRY = "drop expired rows"
_SECONDS = {Rate.MINUTES: 60, Rate.HOURS: 3600, Rate.DAYS: 86400}


class Triggers:
    """Runs an app's triggers from `start` to `stop`, in threads that a kill ends without harm."""

    def __init__(
        self,
        app: Chalice,
        invocations: Invocations,
        pollers: Sequence[StreamPoller] = (),
        expiry: Function | None = None,
    ) -> None:
        """`pollers` carry the store's changes to the functions; `expiry` drops what has expired, each minute."""
        self._invocations = invocations
        functions, self._schedules = functions_of(app), schedules_of(app)
        if expiry:
            functions[_EXPIRY] = expiry
            self._schedules.append(Schedule(_EXPIRY, 60, delay_seconds=60))
        # without pauses for further tries: the next run makes up for one that failed
        self._scheduled = Invocations(functions, pauses=())
        self._stopping = threading.Event()
        self._pollers = pollers
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start all; what is written afterwards reaches `route`."""
        for poller in self._pollers:
            self._begin("stream", poller.run)
        for poller in self._pollers:
            poller.wait_until_ready(_READY_SECONDS)
        for schedule in self._schedules:
            self._begin("schedule", partial(repeat, schedule, self._scheduled.invoke, self._stopping.wait))

    def stop(self, seconds: float = _STOP_SECONDS) -> None:
        """Stop all, and wait for what runs, so long at most."""
        deadline = time.monotonic() + seconds

        def seconds_left() -> float:
            return max(0.0, deadline - time.monotonic())

        self._stopping.set()
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


@dataclass(frozen=True, slots=True)
class Schedule:
    """A function, how often it is to be invoked, and how long after the start for the first time."""

    function: str
    period_seconds: float
    delay_seconds: float = 0


def schedules_of(app: Chalice) -> list[Schedule]:
    """An app's schedules. One that is no rate is named on standard error and left to AWS."""
    schedules = []
    for source in app.event_sources:
        if not isinstance(source, ScheduledEventConfig):
            continue
        rate = source.schedule_expression
        if isinstance(rate, Rate):
            schedules.append(Schedule(source.name, rate.value * _SECONDS[rate.unit]))
        else:
            print(f"{source.name} does not run here: its schedule is no Rate.", file=sys.stderr)
    return schedules


def repeat(
    schedule: Schedule,
    invoke: Callable[[str, dict[str, Any]], None],
    wait: Callable[[float], bool],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Invoke the function at its first time and then at its rate, whether or not its last run has ended. Runs missed
    while the machine slept are made up for by one. `wait` lets seconds pass and says whether to end."""
    due = clock() + schedule.delay_seconds
    while not wait(max(0.0, due - clock())):
        invoke(schedule.function, event_of(schedule.function))
        due = max(due + schedule.period_seconds, clock())


def event_of(function: str) -> dict[str, Any]:
    """What a function gets when its time has come."""
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": "000000000000",
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": "us-east-1",
        "resources": [f"arn:aws:events:us-east-1:000000000000:rule/{function}"],
        "detail": {},
    }
