"""A consumer: its handler, and its work until it is stopped."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .. import tracing
from .._sync.client import Operations
from ..durations import seconds
from ..errors import HeadraceError
from ..models import Consumer as Registration
from ..models import Group, Message
from .handlers import Handler, bound
from .membership import Membership
from .outcomes import ACK, Retry, Verdict, verdict_of
from .session import Session
from .settings import ConsumerSettings
from .trouble import Trouble

if TYPE_CHECKING:
    import asyncio


class Consumer:
    """Runs a handler for the messages of a group until it is stopped. `registration` has its rank and total."""

    def __init__(self, settings: ConsumerSettings, handler: Handler) -> None:
        self.settings = settings
        self.handler = handler
        self._call = bound(handler, settings.middleware)
        self._stopping = threading.Event()
        self._member: Membership | None = None

    @property
    def registration(self) -> Registration | None:
        return self._member.registration if self._member else None

    def stop(self) -> None:
        """Begin no more: what has not begun is given back, and what runs has until `drain`. Any thread, and signal
        handlers."""
        self._stopping.set()

    def resume(self) -> None:
        """May `run` again, after a `stop`."""
        self._stopping.clear()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def wait_for_stop(self) -> None:
        """Until it is stopped."""
        self._stopping.wait()

    def pause(self, seconds: float) -> None:
        """Wait so long, or until it is stopped."""
        self._stopping.wait(seconds)

    def run(self, hr: Operations, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Work until `stop`. Raises what makes it impossible: no such topic at the start, a token that may not, another
        process that registered under the name. A service that does not answer is waited for."""
        member = self._member = Membership(self.settings)
        trouble = Trouble(f"{self.settings.topic}/{self.settings.group}", self.pause)
        while not self.stopping:
            try:
                group = member.enter(hr)
                lease = self._lease_seconds(hr, group)
            except HeadraceError as error:
                if not error.retryable:
                    raise
                trouble.wait_out(error)
            else:
                trouble.is_over()
                return Session(self, hr, member, group, lease, trouble).run(loop)

    def _lease_seconds(self, hr: Operations, group: Group) -> float:
        """How long a message is ours."""
        s = self.settings
        if s.lease is not None:
            return seconds(s.lease)
        return float(group.lease_seconds or hr.get_topic(s.topic).lease_seconds)

    def call_handler(self, message: Message) -> None:
        """Call the handler, again at once as often as `local_retries` allows. Raises what the last call raised."""
        s = self.settings
        with tracing.handling(s.topic, s.group, message.id, message.attempt, message.headers):
            for tries_left in range(s.local_retries, -1, -1):
                try:
                    self._call(message)
                    return
                except Exception as error:
                    if not tries_left or verdict_of(error).dead_letter or isinstance(error, Retry):
                        raise

    async def call_async_handler(self, message: Message) -> None:
        """The same for a handler that is async. Raises asyncio.TimeoutError after `max_runtime`."""
        import asyncio

        await asyncio.wait_for(self._try_async(message), self.settings.max_runtime_seconds)

    async def _try_async(self, message: Message) -> None:
        s = self.settings
        with tracing.handling(s.topic, s.group, message.id, message.attempt, message.headers):
            for tries_left in range(s.local_retries, -1, -1):
                try:
                    await self._call(message)
                    return
                except Exception as error:
                    if not tries_left or verdict_of(error).dead_letter or isinstance(error, Retry):
                        raise

    def settles(self, verdict: Verdict) -> bool:
        """Does the client send this verdict to the service? Without `auto_ack` the handler acknowledges by itself."""
        return self.settings.auto_ack or verdict != ACK
