"""What AWS runs around our functions beside API Gateway: schedules, the log's stream, asynchronous invocations."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chalice.app import Chalice

from local.functions import Function, Invocations, functions_of
from local.schedule import Schedules, schedules_of
from local.stream import StreamPoller

ROUTE, JOURNAL = "route", "journal"
_JOURNAL_SECONDS, _JOURNAL_BATCH = (
    1.0,
    1000,
)  # nobody waits for it: few large objects rather than many small ones
_STREAMS_ENDPOINT = "AWS_ENDPOINT_URL_DYNAMODB_STREAMS"
_READY_SECONDS = 5.0
_STOP_SECONDS = 5.0


class Triggers:
    """Runs an app's triggers from `start` to `stop`, in threads that a kill ends without harm."""

    def __init__(
        self,
        app: Chalice,
        invocations: Invocations,
        table: str,
        client: Callable[[str], Any] | None,
        journaled: Sequence[str] = (),
    ) -> None:
        """`client` makes the boto3 client of a service. None: the stream of `table` is not read by `route`; nor are
        those of the tables `journaled` by `journal`. Nor is any, if the app has no function of that name."""
        functions = functions_of(app)
        self._invocations = invocations
        self._scheduled = Invocations(functions, pauses=())  # the next run makes up for one that failed
        self._schedules = Schedules(schedules_of(app), self._scheduled.invoke)
        self._pumps: list[StreamPoller] = []
        if client and ROUTE in functions:
            self._pumps.append(_pump(client, table, ROUTE, functions))
        if client and JOURNAL in functions:
            options = {"quick_seconds": _JOURNAL_SECONDS, "idle_seconds": _JOURNAL_SECONDS}
            self._pumps += (
                _pump(client, name, JOURNAL, functions, **options, batch=_JOURNAL_BATCH, images=True)
                for name in journaled
            )
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start all; what is written afterwards reaches `route`."""
        for pump in self._pumps:
            self._begin("stream", pump.run)
        for pump in self._pumps:
            pump.wait_until_ready(_READY_SECONDS)
        self._begin("schedules", self._schedules.run)

    def stop(self, seconds: float = _STOP_SECONDS) -> None:
        """Stop all, and wait for what runs, so long at most."""
        deadline = time.monotonic() + seconds

        def left() -> float:
            return max(0.0, deadline - time.monotonic())

        self._schedules.stop()
        for pump in self._pumps:
            pump.stop()
        self._scheduled.stop(left())
        for thread in self._threads:
            thread.join(left())
        self._invocations.stop(left())

    def _begin(self, name: str, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()


def _pump(
    client: Callable[[str], Any], table: str, name: str, functions: Mapping[str, Function], **options: Any
) -> StreamPoller:
    return StreamPoller(
        table, name, functions[name], client("dynamodb"), client("dynamodbstreams"), **options
    )


def client(service: str) -> Any:
    """A boto3 client of the engine; its streams are at the same endpoint unless the environment says otherwise."""
    import boto3
    from botocore.config import Config

    config = Config(
        connect_timeout=2,
        read_timeout=5,
        retries={"mode": "standard", "total_max_attempts": 1},
        parameter_validation=False,
        user_agent="headrace",
    )
    streams = service == "dynamodbstreams" and not os.environ.get(_STREAMS_ENDPOINT)
    endpoint = os.environ.get("AWS_ENDPOINT_URL_DYNAMODB") if streams else None
    return boto3.client(service, endpoint_url=endpoint, config=config)
