"""`AsyncHeadrace`: the same for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from . import _ending
from ._async.client import AsyncOperations
from ._sync.client import Operations
from .client import Consumers, patient
from .consume.consumer import Consumer
from .consume.schedules import ScheduleOptions
from .consume.settings import ConsumerOptions, ConsumerSettings
from .producer import Producer

if TYPE_CHECKING:  # a type checker brings these
    from typing_extensions import Unpack

    from .producer import ProducerOptions

H = TypeVar("H", bound=Callable[..., Any])


class AsyncHeadrace(AsyncOperations):
    """A Headrace service, for asyncio. `async with AsyncHeadrace.from_env() as hr: await hr.send(…)`"""

    @cached_property
    def _consumers(self) -> Consumers:
        return Consumers()

    _twin: Operations | None = None

    @property
    def consumers(self) -> list[Consumer]:
        """Those that are registered here."""
        return self._consumers.consumers

    def consumer(self, topic: str, *, group: str, **settings: Unpack[ConsumerOptions]) -> Callable[[H], H]:
        """Make a function a consumer, as `Headrace.consumer` does; `async def` handlers run in the loop of `run`."""
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
        """Have a message sent by `cron`, as `Headrace.schedule` does."""
        return lambda function: self._consumers.schedules.add(
            function, name, {"topic": topic, "cron": cron, **options}
        )

    async def register_schedules(self) -> None:
        """Store the schedules that were declared here, as `run` does."""
        await asyncio.to_thread(self._consumers.schedules.register, self._for_threads())

    def producer(self, **settings: Unpack[ProducerOptions]) -> Producer:
        """A producer that sends in a thread of its own; await a send by `asyncio.wrap_future`. `aclose` closes it."""
        return Producer(self._for_threads(), **settings)

    def _for_threads(self) -> Operations:
        """The same service for threads; closed with this."""
        if self._twin is None:
            self._twin = Operations(
                ",".join(self.transport.urls),
                self.transport.token,
                retries=self.transport.retries,
                timeout=self.transport.timeout,
                connections=self.transport.connections,
                app=self.transport.app,
                receive_url=self.transport.receive_url,
            )
        return self._twin

    async def aclose(self) -> None:
        """Stop its consumers, and close its producers, which send what they hold, and the connections."""
        self.stop()
        if self._twin is not None:
            await asyncio.to_thread(_ending.close_all_of, self._twin)
            self._twin.close()
        await super().aclose()

    async def run(self, *, for_seconds: float | None = None) -> None:
        """Let the consumers work until `stop` (or for a time). Polling and settling are threads of their own, so that
        a handler that blocks the loop loses no lease; cancelling this stops them."""
        loop = asyncio.get_running_loop()
        self._consumers.resume()  # here: the thread may begin later than a `stop`
        work = loop.run_in_executor(None, self._run, for_seconds, loop)
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            self.stop()
            await work
            raise

    def _run(self, for_seconds: float | None, loop: asyncio.AbstractEventLoop) -> None:
        with patient(self) as hr:
            self._consumers.run(hr, for_seconds, loop)

    def stop(self) -> None:
        """Let `run` finish what runs, and return."""
        self._consumers.stop()
