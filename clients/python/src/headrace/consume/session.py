"""One run of a consumer in its group: it polls, hands out, renews, settles, and ends within its limit."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from .._sync.client import Operations
from .._tracebacks import shortened
from ..durations import seconds
from ..errors import ConsumerTakenOver, HeadraceError, NotFound
from ..models import Group, Message
from .handlers import is_async
from .holdings import Holdings
from .membership import Membership
from .outcomes import UNTRIED, Verdict, verdict_of
from .settling import SettleQueue, may_go_again
from .trouble import Trouble, may_pass

if TYPE_CHECKING:
    import asyncio

    from .consumer import Consumer
    from .runners import Runner

_LOG = logging.getLogger("headrace")
_MOST = 1000
_LONGEST_POLL_SECONDS = 20.0
_BEAT_SECONDS = 10.0
_LAST_SECONDS = 2.0  # of the limit: to give back what still runs, and to leave
_LEAST_SECONDS = 1.0  # for that, however low the limit
_CUT_OFF = Verdict(ack=False, delay_seconds=0, reason="The consumer ended before its handler.")


class Session:
    """The work of a consumer that is a member of its group."""

    def __init__(
        self,
        consumer: Consumer,
        hr: Operations,
        member: Membership,
        group: Group,
        lease_seconds: float,
        trouble: Trouble,
    ) -> None:
        self._consumer, self._hr, self._member, self._group = consumer, hr, member, group
        self._lease, self._trouble = lease_seconds, trouble
        s = self._settings = consumer.settings
        self._place = f"{s.topic}/{s.group}"
        self._held = Holdings(lease_seconds, s.max_runtime_seconds, s.concurrency, s.prefetch)
        linger = 0 if group.mode == "serial" else seconds(s.ack_linger)
        self._settle_queue = SettleQueue(hr, s.topic, s.group, linger, self._held.drop)
        self._error: BaseException | None = None
        self._are_renewed = True
        self._ended = threading.Event()

    def run(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Work until the consumer is stopped. Raises errors that waiting does not fix."""
        runner = self._runner(loop)
        poller = threading.Thread(target=self._poll, args=(runner,), name="headrace-poll", daemon=True)
        keeper = threading.Thread(target=self._keep, name="headrace-keep", daemon=True)
        self._settle_queue.start()
        for thread in (poller, keeper):
            thread.start()
        self._consumer.wait_for_stop()
        self._end(runner, poller, keeper)
        if self._error:
            raise self._error

    def _runner(self, loop: asyncio.AbstractEventLoop | None) -> Runner:
        from .runners import LoopRunner, ThreadRunner

        s = self._settings
        if is_async(self._consumer.handler):
            return LoopRunner(self._handle_async, s.concurrency, s.topic, self._finish, loop)
        return ThreadRunner(self._handle, s.concurrency, s.topic, self._finish)

    def _end(self, runner: Runner, poller: threading.Thread, keeper: threading.Thread) -> None:
        """Give back what has not begun, wait for what runs, give it back where that takes too long, and leave."""
        limit = seconds(self._settings.drain)
        until = time.monotonic() + limit
        last = until - min(_LAST_SECONDS, limit / 2)
        for message in self._held.close():
            self._settle_queue.settle(message, UNTRIED)
        poller.join(_left(last))
        if not self._held.wait_until_idle(_left(last)):
            cut_off = self._held.running()
            _LOG.warning(
                "%s ends before the handlers of %d messages: they come again", self._place, len(cut_off)
            )
            for message in cut_off:
                self._settle_queue.settle(message, _CUT_OFF)
        self._settle_queue.stop(max(_left(until), _LEAST_SECONDS))
        self._ended.set()
        runner.stop()
        keeper.join(_left(until))
        self._member.leave(self._hr, self._group)

    def _poll(self, runner: Runner) -> None:
        """Receive and hand out, until stopped. It waits for the end of temporary errors; others end the consumer."""
        try:
            rest, longest_rest = 0.0, seconds(self._settings.rest)
            while not self._consumer.stopping:
                room = self._held.wait_for_room(0.5)
                if not room:
                    continue
                try:
                    has_come = self._receive(runner, min(room, _MOST))
                except HeadraceError as error:
                    self._wait_out(error)
                    continue
                rest = 0.0 if has_come else min(longest_rest, rest * 2 + 0.05)
                if rest:
                    self._consumer.pause(rest)
        except BaseException as error:
            self._error = error
        finally:
            self._consumer.stop()

    def _receive(self, runner: Runner, count: int) -> bool:
        s, member = self._settings, self._member
        messages = self._hr.receive(
            s.topic,
            s.group,
            max=count,
            wait=min(seconds(s.wait), _LONGEST_POLL_SECONDS),
            consumer=member.name,
            lease=self._lease,
            instance=member.instance,
        )
        member.saw()
        self._trouble.is_over()
        if not messages:
            _LOG.debug("%s: nothing received: %s", self._place, messages.because)
        for message in messages:
            if self._consumer.stopping or not self._held.take(message):
                self._settle_queue.settle(message, UNTRIED)
                continue
            try:
                runner.submit(message)
            except RuntimeError:  # its loop was closed
                self._settle_queue.settle(message, UNTRIED)
                self._held.done(message)
                raise
        return bool(messages)

    def _wait_out(self, error: HeadraceError) -> None:
        """Wait before the next receive. A group or registration that is missing is made again. Raises what waiting does
        not fix."""
        if isinstance(error, ConsumerTakenOver):
            self._member.is_taken_over = True
        if isinstance(error, NotFound):
            try:
                self._member.enter(self._hr)
            except HeadraceError as refusal:
                error = refusal
        if not may_pass(error):
            raise error
        self._trouble.wait_out(error)

    def _handle(self, message: Message) -> None:
        if not self._held.begin(message):
            raise _Lost
        self._consumer.call_handler(message)

    async def _handle_async(self, message: Message) -> None:
        if not self._held.begin(message):
            raise _Lost
        await self._consumer.call_async_handler(message)

    def _finish(self, message: Message, error: BaseException | None) -> None:
        """A handler is through: settle by how it ended."""
        if isinstance(error, _Lost):
            self._held.drop(message)
        else:
            verdict = verdict_of(error)
            self._tell(message, verdict, error)
            if self._consumer.settles(verdict):
                self._settle_queue.settle(message, verdict)
            else:
                self._held.drop(message)
        self._held.done(message)

    def _tell(self, message: Message, verdict: Verdict, error: BaseException | None) -> None:
        """One log line for each message, with fields for those who collect them."""
        s = self._settings
        facts = {"topic": s.topic, "group": s.group, "message_id": message.id, "attempt": message.attempt}
        level = logging.DEBUG if verdict.ack else logging.WARNING
        _LOG.log(
            level,
            "%s %s attempt %d: %s %s",
            self._place,
            message.id,
            message.attempt,
            verdict.name,
            verdict.reason or "",
            exc_info=shortened(error)
            if error is not None and verdict.reason and not verdict.dead_letter
            else None,
            extra={"headrace": {**facts, "outcome": verdict.name}},
        )

    def _keep(self) -> None:
        """Renew leases that are half over, give back what waits for a handler for long, and stay online while handlers
        run."""
        beat = time.monotonic()
        while not self._ended.wait(min(self._lease / 8, 1.0)):
            now = time.monotonic()
            try:
                for message in self._held.overdue():
                    self._settle_queue.settle(message, UNTRIED)
                self._renew(now)
                if now > beat + _BEAT_SECONDS:
                    beat = now
                    self._member.beat(self._hr)
            except Exception as error:  # the thread continues after any error
                if self._are_renewed:
                    _LOG.warning("%s: leases are not renewed: %s", self._place, error)
                self._are_renewed = False

    def _renew(self, now: float) -> None:
        s, messages = self._settings, self._held.ageing()
        for part in (messages[i : i + _MOST] for i in range(0, len(messages), _MOST)):
            answers = self._hr.extend(s.topic, s.group, *part, lease=self._lease)
            self._are_renewed = True
            for message, answer in zip(part, answers, strict=True):
                if answer.ok:
                    self._held.renew(message, now)
                elif not may_go_again(answer):
                    self._held.drop(message)


class _Lost(Exception):
    """The lease of a message ended before its turn came, or the message was given back."""


def _left(until: float) -> float:
    return max(0.0, until - time.monotonic())
