"""Single sends that travel in batches: `Producer` sends in the background what comes within a moment."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from . import _ending, moments
from ._sync.client import Operations
from ._sync.sends import Batch, goes_again
from .calls import encode, path
from .errors import ClientClosed, Forbidden, HeadraceError, NoAnswer, ResendTooLate, Unauthorized, Unavailable
from .models import Sent
from .outgoing import BATCH_BYTES, BATCH_MESSAGES, Outgoing, RequestIds, SendOptions, now
from .spool import Spool, Waiting

if TYPE_CHECKING:  # a type checker brings it
    from typing_extensions import Unpack

_LOG = logging.getLogger("headrace")
_SPOOL_CLOSE_SECONDS = 5.0
_LAST_SEND_SECONDS = 2.0
_NO_FAULT_OF_MESSAGES = (Unavailable, Unauthorized, Forbidden, ClientClosed)
_SPOOL_PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)


@dataclass(kw_only=True, frozen=True)
class _Item:
    """A message on its way. `number` is its place in the spool."""

    topic: str
    text: msgspec.Raw
    size: int
    future: Future[Sent]
    at: float


class ProducerOptions(TypedDict, total=False):
    """The settings of a producer, for type checkers."""

    linger_ms: float
    max_batch: int
    max_pending: int
    spool: str | Path | None
    block: bool


class Producer:
    """Sends in the background, in batches, in order.

        with Producer(hr, linger_ms=10) as producer:
            future = producer.send("orders", {"order": 188})
        future.result()  # where it was stored; raises what refused it

    What comes within `linger_ms` goes together, at most `max_batch` messages. With `max_pending` messages on the way
    `send` waits for room, or raises `queue.Full` where it shall not `block`. When the service does not answer, a batch
    is sent again as the client's `Retries` say; two minutes after the last answer its futures fail. With a `spool`, a
    file, every message is on disk before `send` returns, and is sent again for as long as it takes, by this process or
    the next one that opens the file. Close it: when the process ends without, it has 5 seconds to send what it holds,
    and logs how many messages are left. A signal that kills the process leaves not even these: then only a spool does.
    """

    def __init__(
        self,
        hr: Operations,
        *,
        linger_ms: float = 10.0,
        max_batch: int = 100,
        max_pending: int = 10_000,
        spool: str | Path | None = None,
        block: bool = True,
    ) -> None:
        if not 1 <= max_batch <= BATCH_MESSAGES:
            raise ValueError(f"max_batch must be 1 to {BATCH_MESSAGES}.")
        self._hr = hr
        self._linger = linger_ms / 1000
        self._max_batch = max_batch
        self._max_pending = max_pending
        self._path = spool
        self._block = block
        self._beginning = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        """What belongs to this process: the thread, and what it has to send."""
        self._spool = Spool(self._path) if self._path is not None else None
        self._requests = RequestIds()
        self._items: deque[_Item] = deque()
        self._futures: dict[int, Future[Sent]] = {}
        self._pending = self._spool.count() if self._spool else 0
        self._flushing = 0
        self._answered_at = time.monotonic()
        self._closed = False
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-producer", daemon=True)
        _ending.add(self)
        self._thread.start()
        self._pid = os.getpid()  # last: until then no other thread uses any of this

    def _is_forked(self) -> bool:
        """Is this a child that has not begun? The thread stayed with the parent, and so did what it has to send."""
        return self._pid != os.getpid()

    def send(self, topic: str, body: Any, **options: Unpack[SendOptions]) -> Future[Sent]:
        """Send soon; `options` are those of `Headrace.send`. Waits while too many are on the way.

        The future has the place where it was stored, or raises the error. ValueError for a message that can't be sent;
        RuntimeError after `close`, BlockingIOError in a forked process while its parent has the spool.
        """
        path("topics", topic)  # what raises later would end the thread, and come again from a spool
        text = encode(Outgoing(body=body, **options).fields(now()))
        if self._is_forked():
            with self._beginning:
                if self._is_forked():
                    if self._spool:
                        self._spool.leave_to_parent()
                    self._begin()
        future: Future[Sent] = Future()
        with self._changed:
            if not self._block and self._pending >= self._max_pending:
                raise queue.Full(f"{self._pending} messages are on the way.")
            self._changed.wait_for(lambda: self._pending < self._max_pending or self._closed)
            if self._closed:
                raise RuntimeError("This producer is closed.")
            if self._spool:
                self._futures[self._spool.add(topic, text)] = future
            else:
                self._items.append(
                    _Item(
                        topic=topic,
                        text=msgspec.Raw(text),
                        size=len(text) + 1,
                        future=future,
                        at=time.monotonic(),
                    )
                )
            self._pending += 1
            if self._pending in (1, self._max_batch) or len(self._items) in (1, self._max_batch):
                self._changed.notify_all()  # only what the sender waits for: a thread that wakes takes time
        return future

    @property
    def pending(self) -> int:
        """How many are on the way."""
        return 0 if self._is_forked() else self._pending

    def flush(self, timeout: float | None = None) -> bool:
        """Send now what is there, and wait until all is through. False: it is not, after `timeout` seconds, or when a
        producer with a spool was closed."""
        if self._is_forked():
            return True
        with self._changed:
            self._flushing += 1
            self._changed.notify_all()
            try:
                self._changed.wait_for(lambda: not self._pending or (self._spool and self._closed), timeout)
                return not self._pending
            finally:
                self._flushing -= 1

    def close(self, timeout: float | None = None) -> None:
        """Send what is there, and end. After `timeout` seconds (with a spool 5, if not given) what is left is tried
        once more, or left to the next one that opens the spool: its futures raise ClientClosed. A send under way has
        2 seconds more; where it takes longer, it ends in the background, and so long keeps the spool."""
        if self._is_forked() or self._closed:
            return
        through = self.flush(_SPOOL_CLOSE_SECONDS if self._spool and timeout is None else timeout)
        with self._changed:
            self._closed = True
            self._stopping.set()
            self._changed.notify_all()
        self._thread.join(None if through else _LAST_SEND_SECONDS if self._spool else 0)
        with self._changed:
            futures, self._futures = [*self._futures.values()], {}
        error = ClientClosed("CLIENT_CLOSED", "The producer was closed; the message is left in its spool.")
        _resolve(futures, [error] * len(futures))

    def sends_by(self, hr: object) -> bool:
        """Is this its client?"""
        return self._hr is hr

    def hurry(self) -> None:
        """Let nothing linger any more."""
        if not self._is_forked():
            with self._changed:
                self._flushing += 1
                self._changed.notify_all()

    def end(self, timeout: float) -> None:
        """Close it, since the process ends; log how many messages are left."""
        if self._is_forked():
            return
        if self._closed:
            self._thread.join(timeout)
        self.close(timeout)
        if self._pending and self._spool:
            _LOG.warning("The process ends: %d messages are left in the spool %s.", self._pending, self._path)
        elif self._pending:
            _LOG.warning(
                "The process ends: %d messages of a producer have no answer, and may be lost. Close the producer "
                "before, or give it a spool.",
                self._pending,
            )

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        try:
            self._work_spooled() if self._spool else self._work()
        finally:
            _ending.discard(self)

    def _work(self) -> None:
        while items := self._next():
            _resolve([item.future for item in items], self._deliver(items))
            self._count_out(len(items))

    def _next(self) -> list[_Item]:
        """What goes together next, after its linger; nothing: it is over. In order, so of one topic at a time."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._closed)
            if not self._items:
                return []
            until = self._items[0].at + self._linger
            self._changed.wait_for(
                lambda: len(self._items) >= self._max_batch or self._flushing or self._closed,
                max(0.0, until - time.monotonic()),
            )
            items: list[_Item] = []
            size = 0
            while self._items and len(items) < self._max_batch:
                item = self._items[0]
                size += item.size
                if items and (item.topic != items[0].topic or size > BATCH_BYTES):
                    break
                items.append(self._items.popleft())
            return items

    def _deliver(self, items: Sequence[_Item]) -> Sequence[Sent | Exception]:
        """The results of a batch. Never raises. In an outage, what has waited behind others is tried once."""
        batch = Batch(
            items[0].topic,
            self._requests.next(),
            [item.text for item in items],
            since=max(items[0].at, self._answered_at),
            pause=self._stopping.wait,
        )
        results: Sequence[Sent | Exception]
        try:
            results = self._hr.send_batch(batch)
        except Exception as error:  # noqa: BLE001 - a refusal, unreadable certificates: the thread goes on
            results = [error] * len(items)
        errors = [result for result in results if isinstance(result, Exception)]
        if len(errors) < len(items) or not isinstance(errors[0], Unavailable):
            self._answered_at = time.monotonic()
        if errors:
            _LOG.warning(
                "%d of %d messages for %s failed: %s", len(errors), len(items), batch.topic, errors[0]
            )
        return results

    def _work_spooled(self) -> None:
        assert self._spool is not None
        troubles = 0
        while self._wait_for_spooled():
            try:
                self._send_spooled()
            except Exception as error:  # noqa: BLE001 - also of the disk, or as in `_deliver`
                _LOG.warning("%d messages wait in the spool: %s", self._pending, error)
                self._stopping.wait(_SPOOL_PAUSES[min(troubles, len(_SPOOL_PAUSES) - 1)])
                troubles += 1
            else:
                troubles = 0
        self._spool.close()

    def _send_spooled(self) -> None:
        """Send what goes together next. Raises what is in the way of all."""
        assert self._spool is not None
        batch = self._spool.next(self._max_batch, BATCH_BYTES)
        if batch is None:
            return
        request = batch.request or self._requests.next()
        if batch.request is None:
            self._spool.begin(batch.numbers, request, moments.now())
        results: Sequence[Sent | HeadraceError]
        try:
            results = self._hr.send_batch(
                Batch(batch.topic, request, batch.messages, batch.first_sent, pause=self._stopping.wait)
            )
        except _NO_FAULT_OF_MESSAGES as error:
            if isinstance(error, NoAnswer) and not error.was_sent:
                self._spool.forget(batch.numbers)
            raise
        except HeadraceError as error:
            results = [error] * len(batch.messages)
        self._settle_spooled(batch, results)

    def _wait_for_spooled(self) -> bool:
        """Wait for something to send, and its linger; False: it is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._closed)
            if self._pending and not self._closed:
                self._changed.wait_for(
                    lambda: self._pending >= self._max_batch or self._flushing or self._closed, self._linger
                )
            return not self._closed

    def _settle_spooled(self, batch: Waiting, results: Sequence[Sent | HeadraceError]) -> None:
        """Take away what is decided; what may be tried again stays, and so its place in the order. With it stays what
        was sent of the same request, since it goes again (`goes_again`)."""
        assert self._spool is not None
        pairs = list(zip(batch.numbers, results, strict=True))
        if late_numbers := [n for n, r in pairs if isinstance(r, ResendTooLate)]:
            _LOG.warning(
                "%d messages are sent as new ones, and may be stored twice: the service no longer knows",
                len(late_numbers),
            )
            self._spool.forget(late_numbers)
        again = {
            n for n, r in pairs if isinstance(r, HeadraceError) and r.retryable and n not in late_numbers
        }
        stays = {n for n, r in pairs if again and goes_again(r)}
        settled_results = [
            (n, r) for n, r in pairs if isinstance(r, Sent) or n not in again | {*late_numbers}
        ]
        reasons = {n: str(r) for n, r in settled_results if isinstance(r, HeadraceError)}
        for reason in reasons.values():
            _LOG.error("A message was refused for good, and is kept in the spool: %s", reason)
        gone = [number for number, _ in settled_results if number not in stays]
        self._spool.remove(gone, reasons)
        with self._changed:
            futures = [self._futures.pop(number, Future()) for number, _ in settled_results]
        _resolve(futures, [result for _, result in settled_results])
        self._count_out(len(gone))

    def _count_out(self, count: int) -> None:
        with self._changed:
            self._pending -= count
            self._changed.notify_all()


def _resolve(futures: Sequence[Future[Sent]], results: Sequence[Sent | Exception]) -> None:
    for future, result in zip(futures, results, strict=True):
        if not future.set_running_or_notify_cancel():
            continue
        if isinstance(result, Sent):
            future.set_result(result)
        else:
            future.set_exception(result)
