"""Pulling: receive, and settle what was received."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

import msgspec

from .. import typed
from .._pause import async_to_its_end
from ..calls import RESEND, Call, given
from ..durations import Duration, seconds, whole_seconds
from ..models import Message, Model, Received, Settled
from .caller import AsyncCaller, group_path, of_each

_LONGEST_POLL_SECONDS = 20.0
_ID_BYTES = 16


class _Messages(Model, frozen=True, kw_only=True):
    messages: list[Message]
    because: str | None = None
    acked: tuple[Settled, ...] = ()


class _Results(Model, frozen=True, kw_only=True):
    results: list[Settled]


class AsyncConsumes(AsyncCaller):
    """Pulling."""

    async def receive(
        self,
        topic: str,
        group: str,
        *,
        max: int = 10,
        wait: Duration = 0,
        consumer: str | None = None,
        lease: Duration | None = None,
        instance: str | None = None,
        ack: Iterable[Message | str] = (),
        run: bool = False,
    ) -> Received:
        """Claim up to `max` messages, waiting up to `wait` for the first. Each is ours for its lease. An empty list has
        the reason, `because`. An async receive that is cancelled gives back, untried, what still comes. `instance`: of
        the consumer; raises ConsumerTakenOver if a later one has its name. `ack`: messages or receipts to acknowledge
        first, with results in `acked`; `max` 0 does only this. `run`: of a serial group, the messages of one ordering
        key, in order under one lease."""
        options = given(
            max=max,
            consumer=consumer,
            instance=instance,
            ack=_receipts(ack) or None,
            run=run or None,
            lease_seconds=whole_seconds(lease) if lease is not None else None,
        )
        seconds_left, acked = seconds(wait), list[Settled]()
        while True:
            poll = min(seconds_left, _LONGEST_POLL_SECONDS)
            # after a lost answer the call is sent again under its id: then it has the same answer
            body = {**options, "wait_seconds": poll, "receive_id": secrets.token_urlsafe(_ID_BYTES)}
            place = group_path(topic, group, "receive")
            call = Call("POST", place, body, headers={RESEND: "0"}, wait_seconds=poll)
            answer = await async_to_its_end(
                self._transport.ask(call, _Messages),
                lambda late: self.nack(topic, group, *late.messages, untried=True),
            )
            options.pop("ack", None)
            acked += answer.acked
            seconds_left -= poll
            if answer.messages or not max or seconds_left <= 0:
                messages = (msgspec.structs.replace(m, topic=topic, group=group) for m in answer.messages)
                return Received(messages, answer.because, acked)

    async def ack(self, topic: str, group: str, *messages: Message | str) -> list[Settled]:
        """Record success of messages (or receipts), 1,000 at most; returns a result for each."""
        return await self._settle(topic, group, "ack", messages)

    async def nack(
        self,
        topic: str,
        group: str,
        *messages: Message | str,
        delay: Duration | None = None,
        dead_letter: bool = False,
        reason: str | None = None,
        untried: bool = False,
    ) -> list[Settled]:
        """Give messages back: for another attempt as their ladder says, after `delay` (0: at once), or as dead
        letters. `untried`: their handling has not begun, so no attempt is counted."""
        delay_seconds = whole_seconds(delay) if delay is not None else None
        how = {"dead_letter": dead_letter or None, "reason": reason, "untried": untried or None}
        options = given(delay_seconds=delay_seconds, **how)
        return await self._settle(topic, group, "nack", messages, **options)

    async def extend(
        self, topic: str, group: str, *messages: Message | str, lease: Duration
    ) -> list[Settled]:
        """Give leases more time, counted from now."""
        return await self._settle(topic, group, "extend", messages, lease_seconds=whole_seconds(lease))

    async def _settle(
        self, topic: str, group: str, action: str, messages: Iterable[Message | str], **fields: object
    ) -> list[Settled]:
        if any(isinstance(each, list | tuple) for each in messages):
            raise TypeError(f"Give the messages one by one: {action}(topic, group, *messages).")
        receipts = _receipts(messages)
        if not receipts:
            return []
        call = Call("POST", group_path(topic, group, action), {"receipts": receipts, **fields})
        return await self._transport.read(
            call, lambda raw: of_each(typed.decoded(raw, _Results).results, len(receipts))
        )


def _receipts(messages: Iterable[Message | str]) -> list[str]:
    return [each if isinstance(each, str) else each.receipt for each in messages]
