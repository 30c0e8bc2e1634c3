"""Calls to hosts of others, asked for by the API function and made by functions that can do less than it can.

So what such a host answers never meets a process that may make tokens, and only `deliver` signs for subscribers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ...domain.errors import NotFound, Unavailable
from ...domain.exchange import Exchange
from ...domain.outcome import Outcome, Verdict
from ...domain.topic import Consumer, ConsumerKind, ConsumerState, Group, Topic
from ...ports.world import Clock, Invoker, Sender
from ..core.catalog import Catalog
from ..core.sealer import Sealer

_PING_SECONDS = 10
_ANSWER_SECONDS = 20  # with a cold start


class Outbound:
    """Both ends of such a call: `greet` and `ping` ask a function, which `answer_…`s."""

    def __init__(
        self,
        catalog: Catalog,
        sealer: Sealer,
        sender: Callable[[], Sender],
        invoker: Invoker,
        clock: Clock,
    ) -> None:
        """`sender` makes it at its first use: who only asks needs none."""
        self._catalog = catalog
        self._sealer = sealer
        self._sender = sender
        self._invoker = invoker
        self._clock = clock

    def greet(self, url: str) -> Outcome:
        """Ask a URL's owner for consent; where nobody can be sent at this moment, it has to be asked again."""
        try:
            answer = self._invoker.ask("check", {"greet": url}, _ANSWER_SECONDS)
        except Unavailable:
            return Outcome(Verdict.FAILED, "nobody could be sent to ask")
        return msgspec.convert(answer["outcome"], Outcome)

    def answer_greet(self, url: str) -> dict[str, Any]:
        """What came of it, as JSON."""
        return {"outcome": msgspec.to_builtins(self._sender().greet(url))}

    def ping(self, topic: Topic, group: Group, consumer: Consumer, id: str) -> Exchange | None:
        """Send a test event; None: the consumer may not be called any more. Raises Unavailable."""
        event = {"topic": topic.name, "group": group.name, "consumer": consumer.name, "id": id}
        answer = self._invoker.ask("deliver", {"ping": event}, _ANSWER_SECONDS)
        return msgspec.convert(answer["exchange"], Exchange | None)

    def answer_ping(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """What was sent and what came back, as JSON. Raises Unavailable."""
        try:
            topic = self._catalog.topic(event["topic"], fresh=True)
            group = self._catalog.group(topic, event["group"], fresh=True)
            self._catalog.forget(topic, group)
            consumer = self._catalog.consumer(topic, group, event["consumer"])
        except NotFound:
            return {"exchange": None}
        if not consumer.is_called or consumer.state == ConsumerState.PENDING:
            return {"exchange": None}
        if consumer.kind == ConsumerKind.URL:
            consumer = self._sealer.ready(topic, group, consumer, self._clock.now_ms())
        return {"exchange": msgspec.to_builtins(self._sender().ping(consumer, event["id"], _PING_SECONDS))}
