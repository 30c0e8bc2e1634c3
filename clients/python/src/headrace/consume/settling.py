"""Settling in the background: what ends within a moment goes in one call, and a lost call is repeated."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from itertools import groupby

from .._sync.client import Operations
from ..models import Message, Settled
from .outcomes import Verdict

_LOG = logging.getLogger("headrace")
_MOST = 500


class SettleQueue:
    """Acks and nacks of one group. `on_settled` is told of each message whose settlement was answered, or given up."""

    def __init__(
        self,
        hr: Operations,
        topic: str,
        group: str,
        linger_seconds: float,
        on_settled: Callable[[Message], None],
    ) -> None:
        self._hr = hr
        self._place = (topic, group)
        self._linger = linger_seconds
        self._settled = on_settled
        self._queue: queue.SimpleQueue[tuple[Message, Verdict] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"headrace-settle-{topic}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def settle(self, message: Message, verdict: Verdict) -> None:
        """Soon, in the order of these calls. Any thread."""
        self._queue.put((message, verdict))

    def stop(self) -> None:
        """Settle what is left, and end."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        going_on = True
        while going_on:
            batch, going_on = self._batch()
            for verdict, members in groupby(sorted(batch, key=_verdict_key), key=lambda each: each[1]):
                self._send([message for message, _ in members], verdict)

    def _batch(self) -> tuple[list[tuple[Message, Verdict]], bool]:
        """What ends within the linger after the first; and whether more will come."""
        first = self._queue.get()
        if first is None:
            return [], False
        batch = [first]
        until = time.monotonic() + self._linger
        while len(batch) < _MOST:
            try:
                seconds_left = until - time.monotonic()
                each = self._queue.get(timeout=seconds_left) if seconds_left > 0 else self._queue.get_nowait()
            except queue.Empty:
                break
            if each is None:
                return batch, False
            batch.append(each)
        return batch, True

    def _send(self, messages: list[Message], verdict: Verdict) -> None:
        """The transport repeats what was lost: a receipt that was settled already is no error."""
        try:
            for message, answer in zip(messages, self._settle_batch(messages, verdict), strict=True):
                if answer.error:
                    _LOG.warning(
                        "%s of %s was refused: %s", verdict.name, message.id, answer.error.get("detail")
                    )
        except Exception as error:  # whatever it is, the thread goes on
            _LOG.error("%d messages could not be settled (%s): they come again", len(messages), error)
        finally:
            for message in messages:
                self._settled(message)

    def _settle_batch(self, messages: list[Message], verdict: Verdict) -> list[Settled]:
        if verdict.ack:
            return self._hr.ack(*self._place, *messages)
        return self._hr.nack(
            *self._place,
            *messages,
            delay=verdict.delay_seconds,
            dead_letter=verdict.dead_letter,
            reason=verdict.reason,
            untried=verdict.untried,
        )


def _verdict_key(each: tuple[Message, Verdict]) -> str:
    return repr(each[1])
