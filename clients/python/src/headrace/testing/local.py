"""A client of a service of one's own, and what a test asks of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from .. import _background, outgoing
from ..async_client import AsyncHeadrace
from ..calls import Call
from ..client import Headrace
from ..consume.consumer import Consumer
from ..consume.handlers import is_async
from ..consume.membership import ensure_group
from ..consume.outcomes import ACK, Verdict, verdict_of
from ..models import Message
from .clock import Clock
from .expect import Expectation
from .subscriber import Push, Subscriber

__tracebackhide__ = True  # pytest shows the test's own line
_AT_ONCE = 100


class LocalHeadrace(Headrace):
    """A `Headrace` whose service is this test's alone: `clock` moves its time, `expect` looks into it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.clock = Clock(self.transport)

    def reset(self) -> None:
        """Forget everything, and go back to the machine's time."""
        self.transport.send(Call("POST", "/v1/reset"))
        outgoing.ahead = timedelta()

    def expect(self, topic: str, group: str | None = None, *, within: float = 5.0) -> Expectation:
        """What shall be true of a topic and a group of it (the only one, if none is named). Where other threads are at
        work, `within` is how many seconds they may still take."""
        return Expectation(self, topic, group, within)

    @contextlib.contextmanager
    def subscriber(
        self, topic: str, group: str, answer: Callable[[Push], int] = lambda push: 204, *, name: str = "test"
    ) -> Iterator[Subscriber]:
        """A subscriber of a group, which is made if it is missing. `answer` returns a status for each push."""
        self.put_group(topic, group, begin="earliest")
        subscriber = Subscriber(answer)
        try:
            self.put_consumer(topic, group, name, url=subscriber.url)
            yield subscriber
        finally:
            subscriber.close()

    def drain(self, *clients: Headrace | AsyncHeadrace) -> list[Verdict]:
        """Let the consumers of these clients (of this one, if none is named) handle all that can be had, in this
        thread (async handlers: in a loop of their own), one message after the other; the verdict on each. What they
        raise is judged as in `run`."""
        verdicts: list[Verdict] = []
        for client in clients or (self,):
            for consumer in client.consumers:
                verdicts += self._drain(consumer)
        return verdicts

    def _drain(self, consumer: Consumer) -> list[Verdict]:
        s, verdicts = consumer.settings, list[Verdict]()
        ensure_group(self, s)
        name = s.consumer_name() if s.mode == "broadcast" else None
        if name:
            self.put_consumer(s.topic, s.group, name)
        while messages := self.receive(s.topic, s.group, max=_AT_ONCE, consumer=name):
            for message in messages:
                verdict = _call_handler(consumer, message)
                verdicts.append(verdict)
                if consumer.settles(verdict):
                    self._settle_one(s.topic, s.group, message, verdict)
        return verdicts

    def _settle_one(self, topic: str, group: str, message: Message, verdict: Verdict) -> None:
        if verdict.ack:
            self.ack(topic, group, message)
            return
        options = {
            "dead_letter": verdict.dead_letter,
            "reason": verdict.reason,
            "delay": verdict.delay_seconds,
        }
        self.nack(topic, group, message, **options)  # type: ignore[arg-type]


def _call_handler(consumer: Consumer, message: Message) -> Verdict:
    try:
        if is_async(consumer.handler):
            _background.run(consumer.call_async_handler(message))
        else:
            consumer.call_handler(message)
    except Exception as error:  # noqa: BLE001  any exception of a handler is an answer
        return verdict_of(error)
    return ACK
