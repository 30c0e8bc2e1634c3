"""Settling in the background: what ends within a moment goes in one call, and a lost call is repeated."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby

from .._sync.client import Operations
from ..errors import HeadraceError
from ..models import Message, Settled
from .outcomes import Verdict

_LOG = logging.getLogger("headrace")
_MOST = 500
_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
_UNSETTLED = "%d messages could not be settled (%s): they come again"


@dataclass(kw_only=True, frozen=True)
class _Settlement:
    """How a message ends. `tries`: how often the service could not say so just then; `due`: when it is asked again, in
    monotonic seconds; `is_last`: it is not asked again."""

    message: Message
    verdict: Verdict
    tries: int = 0
    due: float = 0.0
    is_last: bool = False


class SettleQueue:
    """Acks and nacks of one group. `on_settled` gets each message whose settlement was answered, or given up. While the
    service is away, settlements wait for it: their leases may be longer."""

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
        self._queue: queue.SimpleQueue[_Settlement | None] = queue.SimpleQueue()
        self._again: list[_Settlement] = []
        self._is_away = False
        self._thread = threading.Thread(target=self._work, name=f"headrace-settle-{topic}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def settle(self, message: Message, verdict: Verdict) -> None:
        """Soon, in the order of these calls. Any thread."""
        self._queue.put(_Settlement(message=message, verdict=verdict))

    def stop(self, timeout: float | None = None) -> None:
        """Settle what is left, and end. What the service could not settle yet is tried once more at once."""
        self._queue.put(None)
        self._thread.join(timeout)

    def _work(self) -> None:
        is_open = True
        while is_open:
            batch, is_open = self._batch()
            self._settle_alike(batch)
        # the consumer is in its group until then: what comes for it waits
        last_ones, self._again = [replace(each, is_last=True) for each in self._again], []
        for begin in range(0, len(last_ones), _MOST):
            self._settle_alike(last_ones[begin : begin + _MOST])

    def _settle_alike(self, batch: list[_Settlement]) -> None:
        for verdict, members in groupby(sorted(batch, key=_verdict_key), key=lambda each: each.verdict):
            self._send([*members], verdict)

    def _batch(self) -> tuple[list[_Settlement], bool]:
        """What ends within the linger after the first, or is due again; and whether more will come."""
        now = time.monotonic()
        if due_count := sum(each.due <= now for each in self._again[:_MOST]):
            batch, self._again = self._again[:due_count], self._again[due_count:]
            return batch, True
        try:
            first = self._queue.get(timeout=self._again[0].due - now if self._again else None)
        except queue.Empty:
            return [], True
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

    def _send(self, settlements: list[_Settlement], verdict: Verdict) -> None:
        """The transport repeats what was lost: a receipt that was settled already is no error."""
        messages = [each.message for each in settlements]
        again: dict[str, _Settlement] = {}
        try:
            answers = self._settle_batch(messages, verdict)
            self._is_away = False
            for each, answer in zip(settlements, answers, strict=True):
                if may_go_again(answer) and each.tries < len(_PAUSES) and not each.is_last:
                    again[each.message.receipt] = _later(each)
                elif answer.error:
                    _LOG.warning(
                        "%s of %s was refused: %s", verdict.name, each.message.id, answer.error.get("detail")
                    )
        except HeadraceError as error:
            if error.retryable:  # until it answers
                again = {each.message.receipt: _later(each) for each in settlements if not each.is_last}
            if not again:
                _LOG.error(_UNSETTLED, len(messages), error)
            elif not self._is_away:
                _LOG.warning(
                    "%d messages of %s/%s wait to be settled: %s", len(messages), *self._place, error
                )
            self._is_away = bool(again)
        except Exception as error:  # the thread continues after any error
            _LOG.error(_UNSETTLED, len(messages), error)
        finally:
            self._again = sorted([*self._again, *again.values()], key=lambda each: each.due)
            for message in messages:
                if message.receipt not in again:
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


def _later(each: _Settlement) -> _Settlement:
    pause = _PAUSES[min(each.tries, len(_PAUSES) - 1)]
    return replace(each, tries=each.tries + 1, due=time.monotonic() + pause)


def may_go_again(answer: Settled) -> bool:
    """Was it refused for a reason that passes, such as a busy shard?"""
    return bool(answer.error and answer.error.get("retryable"))


def _verdict_key(each: _Settlement) -> str:
    return repr(each.verdict)
