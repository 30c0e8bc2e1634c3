"""What AWS runs around our functions beside API Gateway: schedules, the log's stream, asynchronous invocations."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from chalice.app import Chalice

from local.functions import Invocations, functions_of
from local.schedule import Schedules, schedules_of
from local.stream import Pump

ROUTE = "route"
_STREAMS_ENDPOINT = "AWS_ENDPOINT_URL_DYNAMODB_STREAMS"
_READY_SECONDS = 5.0
_STOP_SECONDS = 5.0


class Triggers:
    """Runs an app's triggers from `start` to `stop`, in threads that a kill ends without harm."""

    def __init__(
        self, app: Chalice, invocations: Invocations, table: str, client: Callable[[str], Any] | None
    ) -> None:
        """`client` makes the boto3 client of a service. None: the stream of `table` is not read; nor is it if the
        app has no function named `route`."""
        functions = functions_of(app)
        self._invocations = invocations
        self._scheduled = Invocations(functions, pauses=())  # the next run makes up for one that failed
        self._schedules = Schedules(schedules_of(app), self._scheduled.invoke)
        self._pump: Pump | None = None
        if client and ROUTE in functions:
            self._pump = Pump(table, ROUTE, functions[ROUTE], client("dynamodb"), client("dynamodbstreams"))
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start all; what is written afterwards reaches `route`."""
        if self._pump:
            self._begin("stream", self._pump.run)
            self._pump.wait_until_ready(_READY_SECONDS)
        self._begin("schedules", self._schedules.run)

    def stop(self, seconds: float = _STOP_SECONDS) -> None:
        """Stop all, and wait for what runs, so long at most."""
        deadline = time.monotonic() + seconds

        def left() -> float:
            return max(0.0, deadline - time.monotonic())

        self._schedules.stop()
        if self._pump:
            self._pump.stop()
        self._scheduled.stop(left())
        for thread in self._threads:
            thread.join(left())
        self._invocations.stop(left())

    def _begin(self, name: str, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()


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
