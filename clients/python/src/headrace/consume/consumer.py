"""One consumer at work: it registers, polls, hands out, renews, settles, leaves."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from .. import tracing
from .._sync.client import Operations
from .._tracebacks import shortened
from ..durations import seconds
from ..errors import ConsumerNotFound, ConsumerTakenOver, Forbidden, GroupNotFound, HeadraceError
from ..models import Consumer as Registration
from ..models import Group, Message
from ..outgoing import new_id
from .handlers import Handler, bound, is_async
from .holdings import Holdings
from .outcomes import ACK, UNTRIED, Retry, Verdict, verdict_of
from .settings import ConsumerSettings
from .settling import SettleQueue, may_go_again

if TYPE_CHECKING:
    import asyncio

    from .runners import Runner

_LOG = logging.getLogger("headrace")
_MOST = 1000
_BEAT_SECONDS = 10.0
_TROUBLE_SECONDS = 5.0
_EXPIRES_AFTER_SECONDS = 3600


class Consumer:
    """Runs a handler for the messages of a group until it is stopped. `registration` has its rank and total."""

    def __init__(self, settings: ConsumerSettings, handler: Handler) -> None:
        self.settings = settings
        self.handler = handler
        self.registration: Registration | None = None
        self._call = bound(handler, settings.middleware)
        self._stopping = threading.Event()
        self._instance = ""
        self._is_taken_over = False

    def stop(self) -> None:
        """Ask for no more; what is held is finished. Any thread, and signal handlers."""
        self._stopping.set()

    def resume(self) -> None:
        """May `run` again, after a `stop`."""
        self._stopping.clear()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def run(self, hr: Operations, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Work until `stop`. Raises what makes it impossible: no such topic, a token that may not, another process that
        registered under the name."""
        group = self.ensure_group(hr)
        lease = self._lease_seconds(hr, group)
        name = self._join(hr)
        holdings = Holdings(lease, self.settings.max_runtime_seconds)
        s = self.settings
        self._settle_queue = SettleQueue(
            hr, s.topic, s.group, 0 if group.mode == "serial" else seconds(s.ack_linger), holdings.drop
        )
        self._settle_queue.start()
        self._held = holdings
        runner = self._runner(loop)
        keeper = threading.Thread(
            target=self._keep, args=(hr, lease, name), name="headrace-keep", daemon=True
        )
        self._ended = threading.Event()
        keeper.start()
        try:
            self._poll(hr, runner, name)
        except ConsumerTakenOver:
            self._is_taken_over = True
            raise
        finally:
            holdings.wait_until_idle()
            runner.stop()
            self._settle_queue.stop()
            self._ended.set()
            keeper.join()
            # a name keeps its place in a broadcast
            if group.mode != "broadcast" or self.settings.name is None:
                self._leave(hr, name)

    def _runner(self, loop: asyncio.AbstractEventLoop | None) -> Runner:
        from .runners import LoopRunner, ThreadRunner

        s = self.settings
        if is_async(self.handler):
            return LoopRunner(self._handle_async, s.concurrency, s.topic, self._finish, loop)
        return ThreadRunner(self._handle, s.concurrency, s.topic, self._finish)

    def ensure_group(self, hr: Operations) -> Group:
        """The group, made if it is missing. ValueError where it has another mode than this consumer wants."""
        s = self.settings
        try:
            group = hr.get_group(s.topic, s.group)
        except GroupNotFound as error:
            fields: dict[str, Any] = {"mode": s.mode} if s.mode else {}
            if s.tags:
                fields["filter"] = " || ".join(s.tags)
            try:
                group = hr.put_group(s.topic, s.group, begin=s.begin, **fields)
            except Forbidden:
                raise error from None
        if s.mode and group.mode != s.mode:
            raise ValueError(
                f"Group {s.group} of {s.topic} is {group.mode}, not {s.mode}: a mode is for life."
            )
        return group

    def _lease_seconds(self, hr: Operations, group: Group) -> float:
        """How long a message is ours."""
        s = self.settings
        if s.lease is not None:
            return seconds(s.lease)
        return float(group.lease_seconds or hr.get_topic(s.topic).lease_seconds)

    def _join(self, hr: Operations) -> str | None:
        if not self.settings.register:
            return None
        name = self.settings.consumer_name()
        self._instance, self._is_taken_over = new_id(), False
        self._register(hr, name)
        return name

    def _register(self, hr: Operations, name: str) -> None:
        """Register as this instance. A name that was made here has no other user: if this process dies, its
        registration ends as well."""
        expires = _EXPIRES_AFTER_SECONDS if self.settings.name is None else None
        self.registration = hr.put_consumer(
            self.settings.topic,
            self.settings.group,
            name,
            expires_after_seconds=expires,
            instance=self._instance,
        )

    def _leave(self, hr: Operations, name: str | None) -> None:
        if name is None or self._is_taken_over:
            return
        try:
            hr.delete_consumer(self.settings.topic, self.settings.group, name)
        except HeadraceError as error:
            _LOG.warning("%s did not leave its group: %s", name, error)

    def _poll(self, hr: Operations, runner: Runner, name: str | None) -> None:
        """Receive and hand out, until stopped. It waits for the end of temporary errors; permanent errors end it."""
        s = self.settings
        most, rest, wait = s.concurrency + s.waiting, 0.0, seconds(s.wait)
        while not self.stopping:
            room = self._held.wait_for_room(most, 0.5)
            if not room:
                continue
            try:
                messages = hr.receive(
                    s.topic,
                    s.group,
                    max=min(room, _MOST),
                    wait=wait,
                    consumer=name,
                    lease=s.lease,
                    instance=self._instance if name else None,
                )
            except HeadraceError as error:
                self._stopping.wait(self._pause_after(hr, error, name))
                continue
            for message in messages:
                self._held.take(message)
                if self.stopping:
                    self._give_back(message)
                    continue
                try:
                    runner.submit(message)
                except RuntimeError:  # its loop was closed
                    self._give_back(message)
                    raise
            if not messages:
                _LOG.debug("%s/%s: nothing received: %s", s.topic, s.group, messages.because)
            rest = 0.0 if messages else min(seconds(s.rest), rest * 2 + 0.05)
            if rest:
                self._stopping.wait(rest)

    def _give_back(self, message: Message) -> None:
        self._settle_queue.settle(message, UNTRIED)
        self._held.done(message)

    def _pause_after(self, hr: Operations, error: HeadraceError, name: str | None) -> float:
        """How long to wait before polling goes on. Raises errors that waiting does not fix."""
        # offline for so long that it was removed
        if isinstance(error, ConsumerNotFound) and name is not None:
            try:
                self._register(hr, name)
                return 0.0
            except HeadraceError as refusal:
                error = refusal
        if not error.retryable:
            raise error
        _LOG.warning("%s/%s: %s", self.settings.topic, self.settings.group, error)
        return _TROUBLE_SECONDS

    def _handle(self, message: Message) -> None:
        if not self._held.begin(message):
            raise _Lost
        self.call_handler(message)

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

    async def _handle_async(self, message: Message) -> None:
        if not self._held.begin(message):
            raise _Lost
        await self.call_async_handler(message)

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

    def _finish(self, message: Message, error: BaseException | None) -> None:
        """A handler is through: settle by how it ended."""
        if isinstance(error, _Lost):
            self._held.drop(message)
        else:
            verdict = verdict_of(error)
            self._tell(message, verdict, error)
            if self.settles(verdict):
                self._settle_queue.settle(message, verdict)
            else:
                self._held.drop(message)
        self._held.done(message)

    def _tell(self, message: Message, verdict: Verdict, error: BaseException | None) -> None:
        """One log line for each message, with fields for those who collect them."""
        s = self.settings
        facts = {"topic": s.topic, "group": s.group, "message_id": message.id, "attempt": message.attempt}
        level = logging.DEBUG if verdict.ack else logging.WARNING
        _LOG.log(
            level,
            "%s/%s %s attempt %d: %s %s",
            s.topic,
            s.group,
            message.id,
            message.attempt,
            verdict.name,
            verdict.reason or "",
            exc_info=shortened(error) if verdict.reason and not verdict.dead_letter else None,
            extra={"headrace": {**facts, "outcome": verdict.name}},
        )

    def _keep(self, hr: Operations, lease: float, name: str | None) -> None:
        """Renew leases that are half over, and stay online while handlers take long."""
        s, beat = self.settings, time.monotonic()
        while not self._ended.wait(min(lease / 8, 1.0)):
            since = time.monotonic()
            try:
                for messages in _in_parts(self._held.ageing()):
                    answers = hr.extend(s.topic, s.group, *messages, lease=lease)
                    for message, answer in zip(messages, answers, strict=True):
                        if answer.ok:
                            self._held.renew(message, since)
                        elif not may_go_again(answer):
                            self._held.drop(message)
                if name is not None and not self._is_taken_over and since > beat + _BEAT_SECONDS:
                    beat = since
                    self.registration = hr.heartbeat(s.topic, s.group, name, instance=self._instance)
            except ConsumerTakenOver:  # the next receive raises it
                self._is_taken_over = True
            except Exception as error:  # the thread continues after any error
                _LOG.warning("%s/%s: leases were not renewed: %s", s.topic, s.group, error)


class _Lost(Exception):
    """The lease of a message was over before its turn came."""


def _in_parts(messages: list[Message]) -> list[list[Message]]:
    return [messages[i : i + _MOST] for i in range(0, len(messages), _MOST)]
