"""`Headrace`: every operation, producers and consumers."""

from __future__ import annotations

import importlib
import logging
import math
import pkgutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from . import _ending
from ._sync.client import Operations
from .consume.consumer import Consumer
from .consume.schedules import ScheduleOptions, Schedules
from .consume.settings import ConsumerOptions, ConsumerSettings
from .consume.trouble import Trouble
from .durations import seconds
from .errors import HeadraceError

if TYPE_CHECKING:  # loaded when first used, for a quick import
    import asyncio

    from typing_extensions import Unpack

    from .producer import Producer, ProducerOptions

H = TypeVar("H", bound=Callable[..., Any])
_LOG = logging.getLogger("headrace")
_LEAST_SECONDS = 1.0  # to stop, however low `drain` is
_MOST_TRIES = 3  # of one call: consumers wait by themselves, and stop in between


class Consumers:
    """Handlers that were registered, and their work."""

    def __init__(self) -> None:
        self.consumers: list[Consumer] = []
        self.schedules = Schedules()
        self._stopping = threading.Event()
        self._errors: list[BaseException] = []

    def add(self, settings: ConsumerSettings, handler: H) -> H:
        self.consumers.append(Consumer(settings, handler))
        return handler

    def stop(self) -> None:
        self._stopping.set()
        for consumer in self.consumers:
            consumer.stop()

    def resume(self) -> None:
        self._stopping.clear()
        for consumer in self.consumers:
            consumer.resume()

    def run(
        self, hr: Operations, for_seconds: float | None, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        """All of them, each in a thread, until stopped, perhaps already (see `resume`); the first error stops all, and
        is raised. Schedules are registered meanwhile."""
        if not self.consumers and not self.schedules.wanted:
            raise ValueError("There is no consumer: register handlers with @hr.consumer(topic, group=…).")
        self._errors.clear()
        threads = [
            threading.Thread(
                target=self._one, args=(each, hr, loop), name=f"headrace-{each.settings.topic}", daemon=True
            )
            for each in self.consumers
        ]
        threads.append(
            threading.Thread(target=self._register, args=(hr,), name="headrace-schedules", daemon=True)
        )
        timer = threading.Timer(for_seconds, self.stop) if for_seconds is not None else None
        if timer:
            timer.daemon = True  # a second signal ends the process without it
        for thread in (*threads, *([timer] if timer else [])):
            thread.start()
        self._join(threads)
        if timer:
            timer.cancel()
        if self._errors:
            raise self._errors[0]

    def _join(self, threads: list[threading.Thread]) -> None:
        """Until all have ended. One that a call to the service keeps is left to the end of the process."""
        until = math.inf
        while living := [each for each in threads if each.is_alive()]:
            living[0].join(0.2)  # in steps: a signal must find the main thread awake
            if until == math.inf and self._is_stopped():
                drains = (seconds(each.settings.drain) for each in self.consumers)
                until = time.monotonic() + max((_LEAST_SECONDS, *drains))
            if time.monotonic() > until:
                _LOG.warning("%d consumers still wait for the service: `run` ends without them.", len(living))
                return

    def _is_stopped(self) -> bool:
        by_one = bool(self.consumers) and all(each.stopping for each in self.consumers)
        return by_one or self._stopping.is_set()

    def _register(self, hr: Operations) -> None:
        """A service that does not answer is waited for."""
        trouble = Trouble("schedules", self._stopping.wait)
        while not self._stopping.is_set():
            try:
                return self.schedules.register(hr)
            except HeadraceError as error:
                if not error.retryable:
                    return self._fail(error)
                trouble.wait_out(error)
            except BaseException as error:  # noqa: BLE001  it is raised where `run` was called
                return self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._errors.append(error)
        self.stop()

    def _one(self, consumer: Consumer, hr: Operations, loop: asyncio.AbstractEventLoop | None) -> None:
        try:
            consumer.run(hr, loop)
        except BaseException as error:  # noqa: BLE001  it is raised where `run` was called
            self._fail(error)


class Headrace(Operations):
    """A Headrace service: send, receive, consume, operate. Threads may share it.

    hr = Headrace.from_env()
    hr.send("orders", {"order": 188}, key="order-188", delay="30m")
    """

    @cached_property
    def _consumers(self) -> Consumers:
        return Consumers()

    @property
    def consumers(self) -> list[Consumer]:
        """Those that are registered here; `registration` has their rank and total while they run."""
        return self._consumers.consumers

    def consumer(self, topic: str, *, group: str, **settings: Unpack[ConsumerOptions]) -> Callable[[H], H]:
        """Make a function a consumer; it works once `run` is called. For `settings` see `ConsumerSettings`.

        It is called with a message, or, by its annotations, with the body as a dataclass, a msgspec struct or a
        pydantic model, or with both. What it returns is an ack; what it raises lets the message be tried again by its
        ladder; `Retry` says when, `Bury` never. `async def` handlers run in an event loop.
        """
        consumer_settings = ConsumerSettings(topic, group, **settings)
        return lambda handler: self._consumers.add(consumer_settings, handler)

    def schedule(
        self,
        cron: str | None = None,
        *,
        topic: str,
        name: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Callable[[H], H]:
        """Have a message sent to the topic by `cron`, or `every` so often; `options` as for `put_schedule`. The
        schedule is called `<app>.<function>`, unless `name` says otherwise; the function stays as it is, so
        `@hr.consumer` can make it the handler.

        `run` stores the schedules under the client's `app`, and deletes those that the same application and token had
        before; `register_schedules` does only that.
        """
        return lambda function: self._consumers.schedules.add(
            function, name, {"topic": topic, "cron": cron, **options}
        )

    def register_schedules(self) -> None:
        """Store the schedules that were declared here, as `run` does: for a step of a deployment."""
        self._consumers.schedules.register(self)

    def producer(self, **settings: Unpack[ProducerOptions]) -> Producer:
        """A producer that sends in the background, in batches; for `settings` see `Producer`."""
        from .producer import Producer

        return Producer(self, **settings)

    def close(self) -> None:
        """Stop its consumers, and close its producers, which send what they hold, and the connections."""
        self.stop()
        _ending.close_all_of(self)
        super().close()

    def discover(self, package: str) -> None:
        """Import every module of a package, so that the handlers in it register themselves."""
        root = importlib.import_module(package)
        for module in pkgutil.walk_packages(getattr(root, "__path__", []), f"{package}."):
            importlib.import_module(module.name)

    def run(self, *, for_seconds: float | None = None) -> None:
        """Let the consumers work until `stop`, SIGTERM or SIGINT (or for a time): then they give back what has not
        begun, finish what runs (within `drain`), leave their groups, and this returns. A service that is away is waited
        for. Raises what makes work impossible."""
        self._consumers.resume()
        with _signals(self.stop), patient(self) as hr:
            self._consumers.run(hr, for_seconds)

    def stop(self) -> None:
        """Let `run` finish what runs, and return. Any thread."""
        self._consumers.stop()


def patient(hr: Any) -> Operations:
    """The same service, asked few times by each call, over connections of its own."""
    transport = hr.transport
    few = replace(
        transport.retries,
        attempts=min(_MOST_TRIES, transport.retries.attempts or _MOST_TRIES),
        total_seconds=min(transport.timeout, transport.retries.total_seconds),
    )
    return Operations(
        ",".join(transport.urls),
        transport.token,
        retries=few,
        timeout=transport.timeout,
        connections=transport.connections,
        app=transport.app,
        receive_url=transport.receive_url,
    )


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """While inside, SIGTERM and SIGINT mean `stop`; a second one means what it did before. Only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def once(number: int, frame: object) -> None:
        signal.signal(number, before[signal.Signals(number)])
        stop()

    for number in before:
        signal.signal(number, once)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
