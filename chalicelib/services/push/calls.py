"""The calls of one run to its subscribers, each in a thread of a pool; their results come back through one queue.

Called by `run.py`; `delivery/sender.py` makes the calls.
"""

from __future__ import annotations

import queue
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ...domain.call_result import Attempt, CallResult, PushBatch, Verdict
from ...domain.errors import Unavailable
from ...domain.message import Message
from ...domain.topic import Callback, Consumer
from ..consume.claimant import ClaimedMessage
from ..core.bodies import with_bodies
from .run_time import MARGIN_SECONDS, RunTime
from .settlements import in_batches
from .sources import Capacity, DispatchContext, Sources

_GATHER_SECONDS = 0.02  # results within this time are settled together
LOOK_SECONDS = 1.0  # while an attempt runs, new messages are looked for this often
_PART = 10  # messages of a run that are settled together, or those of
_PART_MS = 1_000
_Messages = Sequence[ClaimedMessage]
_NO_SECRET_PAUSE_MS = 10_000  # before another try, where the signing secret cannot be decrypted now


class EndedCall(NamedTuple):
    """A request that has ended, with a result for each of its messages. Of a run, the requests of a part, and the rest
    of its messages."""

    consumer: Consumer
    claimed_messages: Sequence[ClaimedMessage]
    results: Sequence[CallResult]
    rest: Sequence[ClaimedMessage] = ()


@dataclass(eq=False)
class Calls:
    """The calls of one run."""

    context: DispatchContext
    capacity: Capacity
    time: RunTime

    def __post_init__(self) -> None:
        self._events: queue.SimpleQueue[EndedCall | None] = queue.SimpleQueue()  # None: a wake-up

    def wake(self) -> None:
        """Let `take_ended` return, so that the run looks for new messages."""
        self._events.put(None)

    def was_woken(self) -> bool:
        """Has a wake-up come that `take_ended` has not met? Takes it. Asked only when no call is under way."""
        if self._events.empty():
            return False
        self._events.get()
        return True

    def start(self, pool: Executor, sources: Sources, claimant: Consumer, messages: _Messages) -> None:
        """Send the messages that `claimant` was granted, each in its call or together, as the group says."""
        by_consumer: dict[Consumer, list[ClaimedMessage]] = {}
        for claimed_message in messages:
            by_consumer.setdefault(sources.target(claimant, claimed_message), []).append(claimed_message)
        for consumer, claimed_messages in by_consumer.items():
            for batch in in_batches(sources.group, consumer, claimed_messages):
                pause_ms = self.capacity.pause_ms(sources, consumer)
                if pause_ms is None:
                    self.send(pool, sources, consumer, batch)
                else:
                    self.capacity.count(consumer, batch, +1)
                    held = CallResult(Verdict.NOT_ATTEMPTED, retry_after_ms=pause_ms)
                    self._events.put(EndedCall(consumer, batch, (held,) * len(batch)))

    def send(self, pool: Executor, sources: Sources, consumer: Consumer, batch: _Messages) -> None:
        """Send a batch together, or the first messages of a run one after the other."""
        self.capacity.count(consumer, batch, +1)
        send = self._send_in_turn if batch[0].is_in_run else self._send
        seconds = self.time.attempt_seconds(sources, consumer)
        future = pool.submit(send, sources, consumer, batch, seconds)
        future.add_done_callback(partial(self._note_end, consumer, batch))

    def take_ended(self, seconds: float = LOOK_SECONDS) -> list[EndedCall]:
        """The requests that have ended, with those that end right after. Empty after so many seconds, or when woken:
        look for new messages."""
        calls: list[EndedCall] = []
        left = self.capacity.under_way
        try:
            while left > 0 and (event := self._events.get(timeout=_GATHER_SECONDS if calls else seconds)):
                calls.append(event)
                left -= 1 if event.claimed_messages[0].is_in_run else len(event.claimed_messages)
        except queue.Empty:
            pass
        return self._no_longer_under_way(calls)

    def take_ended_meanwhile(self) -> list[EndedCall]:
        """The requests that have ended by now. Does not wait, and leaves wake-ups to `take_ended`."""
        events: list[EndedCall | None] = []
        while not self._events.empty():
            events.append(self._events.get())
        if None in events:
            self._events.put(None)
        return self._no_longer_under_way([event for event in events if event])

    def _no_longer_under_way(self, calls: list[EndedCall]) -> list[EndedCall]:
        for call in calls:
            self.capacity.count(call.consumer, [*call.claimed_messages, *call.rest], -1)
        return calls

    def _note_end(
        self, consumer: Consumer, batch: Sequence[ClaimedMessage], future: Future[tuple[CallResult, ...]]
    ) -> None:
        """A request has ended. An exception of our own counts as a failed attempt, so that it is visible and does not
        repeat for ever."""
        error = future.exception()
        results = (_fault(error),) * len(batch) if error else future.result()
        self._events.put(EndedCall(consumer, batch[: len(results)], results, batch[len(results) :]))

    def _send_in_turn(
        self, sources: Sources, consumer: Consumer, run: _Messages, seconds: float
    ) -> tuple[CallResult, ...]:
        """Send messages of a run until it is time to settle some, or one does not succeed."""
        until_ms = self.context.clock.now_ms() + _PART_MS
        results: tuple[CallResult, ...] = ()
        for claimed_message in run[:_PART]:
            try:
                results += self._send(sources, consumer, [claimed_message], seconds)
            except Exception as error:  # noqa: BLE001 - those before it have their results
                results += (_fault(error),)
            if results[-1].verdict is not Verdict.DONE or self.context.clock.now_ms() >= until_ms:
                break
        return results

    def _send(
        self, sources: Sources, consumer: Consumer, claimed_messages: Sequence[ClaimedMessage], seconds: float
    ) -> tuple[CallResult, ...]:
        group = sources.group
        try:
            consumer = self.context.secret_cipher.with_plain_secrets(
                sources.topic, group, consumer, self.context.clock.now_ms()
            )
        except Unavailable as error:
            not_attempted = CallResult(Verdict.NOT_ATTEMPTED, str(error), retry_after_ms=_NO_SECRET_PAUSE_MS)
            return (not_attempted,) * len(claimed_messages)
        if isinstance(consumer, Callback) and consumer.name not in (group.callbacks or ()):
            why = f"callback_url: no group allows calls to {consumer.name!r} any more"
            return (CallResult(Verdict.REFUSED, why),) * len(claimed_messages)
        contents = with_bodies(
            self.context.blobs, self.context.clock, [each.message for each in claimed_messages]
        )
        attempts = tuple(
            Attempt(message, claimed_message.attempt)
            for message, claimed_message in zip(contents, claimed_messages, strict=True)
            if isinstance(message, Message)
        )
        waited_ms = self.context.clock.now_ms() - min(each.receipt.claimed_ms for each in claimed_messages)
        # We waited for a thread or the store: too little of the lease or of the function's time is left.
        if waited_ms > MARGIN_SECONDS * 1000 or self.time.seconds_left() < seconds:
            return (CallResult(Verdict.NOT_ATTEMPTED),) * len(claimed_messages)
        push_batch = PushBatch(group.topic, group.name, group.payload, attempts, sources.topic.max_body_bytes)
        results = iter(self.context.sender.send(consumer, push_batch, seconds) if attempts else ())
        return tuple(each if isinstance(each, CallResult) else next(results) for each in contents)


def _fault(error: BaseException) -> CallResult:
    return CallResult(Verdict.FAILED, f"fault of the sender: {type(error).__name__}")
