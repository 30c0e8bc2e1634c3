"""Sending: one message, many, raw ones, and transactions. A send may be repeated after a lost answer."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import TracebackType
from typing import Any

import msgspec

from .. import tracing, typed
from ..calls import REQUEST, Call, encode, given, path
from ..durations import Duration, whole_seconds
from ..errors import HeadraceError, Unavailable, of_problem
from ..models import RetryFields, Sent, Transaction
from ..models.settings import Unpack
from ..moments import Moment, now
from ..outgoing import BATCH_BYTES, DedupUntil, Outgoing, RequestIds, SendOptions, chunks, new_id, outgoing
from .after import AsyncAfterBlock
from .caller import AsyncCaller, of_each
from .pager import AsyncPager
from .transport import AsyncTransport

_LOG = logging.getLogger("headrace")
_NAME = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)
_VALUE = re.compile(r"(?!\s)[^\x00-\x08\x0a-\x1f\x7f]*(?<!\s)", re.ASCII)


class _AllSent(msgspec.Struct):
    results: list[Sent]


class _Results(msgspec.Struct):
    results: list[dict[str, Any]]


@dataclass(frozen=True)
class Batch:
    """Messages of one topic as they are sent, under one name: sent again, they are known by it. `first_sent` is
    the time of the first try, if there was one. For `since` and `pause` see `Transport.read`."""

    topic: str
    request: str
    messages: Sequence[Mapping[str, Any] | msgspec.Raw]
    first_sent: Moment | None = None
    since: float | None = None
    pause: Callable[[float], Any] | None = None


class AsyncSends(AsyncCaller):
    """Sending."""

    def __init__(self, transport: AsyncTransport) -> None:
        super().__init__(transport)
        self._requests = RequestIds()

    async def send(
        self,
        topic: str,
        body: Any,
        *,
        key: str | None = None,
        keys: Sequence[str] = (),
        tag: str | None = None,
        tenant: str | None = None,
        ordering_key: str | None = None,
        shard: int | None = None,
        priority: int | None = None,
        headers: Mapping[str, str] | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | str | None = None,
        expires_in: Duration | None = None,
        sent_at: datetime | str | None = None,
        dedup_id: str | None = None,
        dedup_until: DedupUntil | None = None,
        retry: RetryFields | None = None,
        content_type: str | None = None,
        callback_url: str | None = None,
    ) -> Sent:
        """Send one message; it is durable when this returns. `body` is anything with a JSON form, or bytes.

        `delay` is "30m", seconds or a timedelta. A lost answer is no loss: the message is sent again, and known.
        Raises TopicNotFound, BodyTooLarge …; Unavailable or RateLimited after two minutes of tries (`Retries`).
        """
        __tracebackhide__ = True
        message = Outgoing(
            body=body,
            key=key,
            keys=keys,
            tag=tag,
            tenant=tenant,
            ordering_key=ordering_key,
            shard=shard,
            priority=priority,
            headers=headers or {},
            delay=delay,
            deliver_at=deliver_at,
            expires_in=expires_in,
            sent_at=sent_at,
            dedup_id=dedup_id,
            dedup_until=dedup_until,
            retry=retry,
            content_type=content_type,
            callback_url=callback_url,
        )
        return await self._send(topic, message)

    async def _send(self, topic: str, message: Outgoing) -> Sent:
        """Send a message, and log the result at level DEBUG."""
        __tracebackhide__ = True
        url_path = path("topics", topic, "messages")
        with tracing.sending(topic, 1):
            call = Call("POST", url_path, message.fields(), headers=self._request_headers(), is_send=True)
            try:
                result = await self._transport.ask(call, Sent)
            except HeadraceError as error:
                facts = {"topic": topic, "key": message.key, "outcome": error.code}
                _LOG.debug(
                    "%s: sending key %s came to %s", topic, message.key, error, extra={"headrace": facts}
                )
                raise
        facts = {"topic": topic, "message_id": result.id, "key": message.key, "outcome": result.status}
        _LOG.debug(
            "%s %s is %s, key %s", topic, result.id, result.status, message.key, extra={"headrace": facts}
        )
        return result

    async def put_job(self, topic: str, job: str, body: Any, **options: Unpack[SendOptions]) -> Sent:
        """Store a message under a name of yours, or replace the one that waits under it, content and time: put it
        again with a `delay`, and it waits again. `options` are those of `send`, without a `dedup_id`.

        The name is free once every group has ended the message. Raises AlreadyClaimed while a group works on it.
        """
        message = Outgoing(body=body, **options).fields()
        return await self._ask(Sent, "PUT", path("topics", topic, "jobs", job), message)

    def _request_headers(self) -> dict[str, str]:
        return {REQUEST: self._requests.next(), **tracing.outgoing_headers()}

    async def send_many(
        self,
        topic: str,
        messages: Iterable[Any],
        *,
        chunk: int = 100,
        on_progress: Callable[[int], None] | None = None,
    ) -> list[Sent | HeadraceError]:
        """Send bodies (or `Outgoing`, which say more), in batches of `chunk`; for each, in order, where it was stored
        or why not. `on_progress` gets the number of finished items after each batch.

        Raises what refuses everything (TopicNotFound, Unauthorized …): what was sent before stays sent.
        """
        __tracebackhide__ = True
        results: list[Sent | HeadraceError] = []
        for part in chunks(messages, chunk):
            for fields in _parts_that_fit([message.fields() for message in part]):
                results += await self.send_batch(Batch(topic, self._requests.next(), fields))
            if on_progress:
                on_progress(len(results))
        return results

    async def send_batch(self, batch: Batch) -> list[Sent | HeadraceError]:
        """Send one batch, and again until nothing of it may be tried again."""
        __tracebackhide__ = True
        results: dict[int, Sent | HeadraceError] = {}
        indexes = list(range(len(batch.messages)))
        start, begun_at, is_last, tries = now(), time.monotonic(), False, 0
        batch = replace(batch, since=begun_at if batch.since is None else batch.since)
        part = batch
        while True:
            tries += 1
            try:
                answers = await self._batch(part)
            except HeadraceError as error:
                if not results or isinstance(error, Unavailable):
                    raise
                break  # closed, or refused, meanwhile: what the first tries came to stands
            for i, answer in zip(indexes, answers, strict=True):
                if not isinstance(results.get(i), Sent):
                    results[i] = answer
            errors = [e for e in results.values() if isinstance(e, HeadraceError) and e.retryable]
            if not errors:
                break
            indexes = [i for i, result in results.items() if goes_again(result)]
            wait = self._transport.retries.pause(errors[0], tries, time.monotonic() - begun_at, 0.5)
            if wait is None or is_last:
                break
            is_last = bool(await (batch.pause or self._transport.pause)(wait))
            messages = [batch.messages[i] for i in indexes]
            part = replace(batch, messages=messages, first_sent=batch.first_sent or start)
        return [results[i] for i in range(len(batch.messages))]

    async def _batch(self, batch: Batch) -> list[Sent | HeadraceError]:
        __tracebackhide__ = True
        with tracing.sending(batch.topic, len(batch.messages)):
            call = Call(
                "POST",
                path("topics", batch.topic, "messages", "batch"),
                {"messages": batch.messages},
                headers={REQUEST: batch.request, **tracing.outgoing_headers()},
                is_send=True,
                first_sent=batch.first_sent,
            )
            return await self._transport.read(
                call,
                lambda raw: of_each(_outcomes_of(raw), len(batch.messages)),
                since=batch.since,
                pause=batch.pause,
            )

    async def publish(
        self,
        topic: str,
        raw: bytes,
        *,
        content_type: str = "application/octet-stream",
        key: str | None = None,
        tag: str | None = None,
        tenant: str | None = None,
        ordering_key: str | None = None,
        priority: int | None = None,
        dedup_id: str | None = None,
        dedup_until: DedupUntil | None = None,
        delay: Duration | None = None,
        callback_url: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Sent:
        """Send bytes as they are; `headers` may make them a CloudEvent (`ce-…`). The way for bodies of megabytes.
        ValueError for what no header can hold."""
        __tracebackhide__ = True
        delay_seconds = whole_seconds(delay) if delay is not None else None
        options = given(
            **{
                "Content-Type": content_type,
                "Headrace-Key": key,
                "Headrace-Tag": tag,
                "Headrace-Tenant": tenant,
                "Headrace-Ordering-Key": ordering_key,
                "Headrace-Priority": None if priority is None else str(priority),
                "Headrace-Dedup-Id": dedup_id,
                "Headrace-Dedup-Until": dedup_until,
                "Headrace-Callback-Url": callback_url,
                "Headrace-Delay-Seconds": str(delay_seconds) if delay_seconds is not None else None,
            }
        )
        all_headers = {**self._request_headers(), **options, **(headers or {})}
        for name, value in all_headers.items():
            if not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
                raise ValueError(
                    f"No header can be {name!r} with the value {value!r}: `send` takes any text."
                )
        call = Call("POST", path("publish", topic), raw=raw, headers=all_headers, is_send=True)
        return await self._transport.ask(call, Sent)

    def publish_after(self) -> AsyncAfterBlock:
        """`with hr.publish_after() as after: after.send("orders", {…})` sends at the block's end, in batches, and
        nothing if the block raises. Leaving the block raises what refused a message; `after.results` has all. A process
        that dies between its own commit and the sends has sent nothing: `transaction` leaves no such gap."""
        return AsyncAfterBlock(self)

    async def prepare(
        self,
        topic: str,
        message: Any,
        *,
        check_url: str | None = None,
        check_after: Duration | None = None,
    ) -> Transaction:
        """Prepare a message, to be delivered after `commit`. Without a decision `check_url` is asked, each time
        `check_after` (60 seconds) has passed."""
        fields = outgoing(message).fields()
        body = given(
            message={"dedup_id": new_id(), **fields},
            check_url=check_url,
            check_after_seconds=whole_seconds(check_after) if check_after is not None else None,
        )
        return await self._ask(Transaction, "POST", path("topics", topic, "transactions"), body, is_send=True)

    async def commit(self, id: str) -> Transaction:
        """Commit: the message enters its topic. Repeating it is harmless; TransactionDecided after the opposite."""
        return await self._ask(Transaction, "POST", path("transactions", id, "commit"), {}, is_send=True)

    async def roll_back(self, id: str) -> Transaction:
        """Roll back: the message is never delivered."""
        return await self._ask(Transaction, "POST", path("transactions", id, "rollback"), {}, is_send=True)

    async def get_transaction(self, id: str) -> Transaction:
        """A transaction: its state, its checks, and where its message went."""
        return await self._ask(Transaction, "GET", path("transactions", id))

    def list_transactions(
        self, topic: str, *, state: str | None = None, limit: int | None = None
    ) -> AsyncPager[Transaction]:
        """Transactions of a state (PREPARED unless another is given)."""
        return self._list(Transaction, path("topics", topic, "transactions"), state=state, limit=limit)

    def transaction(
        self,
        topic: str,
        message: Any,
        *,
        check_url: str | None = None,
        check_after: Duration | None = None,
    ) -> AsyncTransactionBlock:
        """`with hr.transaction("payments", {…}) as tx:` prepares the message, commits it at the end of the block, and
        rolls it back if the block raises. Note `tx.transaction_id` in your own database, in the same transaction."""
        return AsyncTransactionBlock(self, topic, message, check_url, check_after)


class AsyncTransactionBlock:
    """A block whose end decides about a message."""

    def __init__(
        self,
        sends: AsyncSends,
        topic: str,
        message: Any,
        check_url: str | None,
        check_after: Duration | None,
    ) -> None:
        self._sends = sends
        self._prepare = (topic, message, check_url, check_after)
        self._id = ""

    async def __aenter__(self) -> Transaction:
        topic, message, check_url, check_after = self._prepare
        transaction = await self._sends.prepare(topic, message, check_url=check_url, check_after=check_after)
        self._id = transaction.transaction_id
        return transaction

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self._sends.commit(self._id)
            return
        try:
            await self._sends.roll_back(self._id)
        except HeadraceError as settle_error:
            if hasattr(error, "add_note"):
                error.add_note(f"The message was not rolled back: {settle_error}")


def _outcomes_of(answer: bytes) -> list[Sent | HeadraceError]:
    """What became of each message of a batch."""
    try:
        return [*typed.decoded(answer, _AllSent).results]
    except msgspec.ValidationError:  # some were refused
        results = typed.decoded(answer, _Results).results
        return [
            of_problem(each["error"]) if "error" in each else typed.converted(each, Sent) for each in results
        ]


def goes_again(result: Sent | HeadraceError) -> bool:
    """Is a message of a batch sent again with those that may be tried again? What was stored is, too: the service knows
    the messages of a request by their contents, and would take an equal one that it refused for it."""
    return isinstance(result, Sent) or result.retryable


def _parts_that_fit(messages: Sequence[Mapping[str, Any]]) -> Iterable[list[Mapping[str, Any]]]:
    """Cut so that each part fits one call. Most do whole, which one look at the sum shows."""
    sizes = [len(encode(message)) + 1 for message in messages]
    part: list[Mapping[str, Any]] = []
    room = BATCH_BYTES
    for message, size in zip(messages, sizes, strict=True):
        if part and size > room:
            yield part
            part, room = [], BATCH_BYTES
        part.append(message)
        room -= size
    yield part
