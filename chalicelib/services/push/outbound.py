"""Calls to subscribers' hosts that the API function needs. Functions with fewer permissions make them.

So the answer of such a host never reaches a process that may create tokens, and only `deliver` signs for subscribers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from ...domain import strict_json
from ...domain.call_result import Attempt, CallResult, Exchange, PushBatch, Verdict
from ...domain.errors import NotFound, Unavailable
from ...domain.message import Draft, Message
from ...domain.topic import Consumer, ConsumerKind, ConsumerState, Group, Topic
from ...ports.world import Clock, Invoker, Sender
from ..core.catalog import Catalog
from ..core.secrets import SecretCipher

_PING_SECONDS = 10
_ANSWER_SECONDS = 20  # with a cold start


@dataclass(kw_only=True, eq=False)
class Outbound:
    """Both ends of such a call: `greet` and `ping` invoke a function, which runs `answer_greet` or `answer_ping`.
    `sender` creates the sender at its first use: the calling end needs none."""

    catalog: Catalog
    secret_cipher: SecretCipher
    sender: Callable[[], Sender]
    invoker: Invoker
    clock: Clock

    def greet(self, url: str) -> CallResult:
        """Ask a URL's owner for consent. If the function cannot be invoked now, the result says to ask again."""
        try:
            answer = self.invoker.ask("check", {"greet": url}, _ANSWER_SECONDS)
        except Unavailable:
            return CallResult(Verdict.FAILED, "nobody could be sent to ask")
        return strict_json.converted(answer["result"], CallResult)

    def answer_greet(self, url: str) -> dict[str, Any]:
        """The result of asking, as JSON."""
        return {"result": msgspec.to_builtins(self.sender().greet(url))}

    def ping(
        self, topic: Topic, group: Group, consumer: Consumer, id: str, draft: Draft | None = None
    ) -> Exchange | None:
        """Send a test event, or this message; None: the consumer may not be called any more. Raises Unavailable."""
        event = {"topic": topic.name, "group": group.name, "consumer": consumer.name, "id": id}
        if draft:
            event["draft"] = msgspec.json.encode(draft).decode()
        answer = self.invoker.ask("deliver", {"ping": event}, _ANSWER_SECONDS)
        fields = answer["exchange"]
        return None if fields is None else strict_json.converted(fields, Exchange)

    def answer_ping(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """The request and the answer, as JSON. Raises Unavailable."""
        try:
            topic = self.catalog.topic(event["topic"], consistent=True)
            group = self.catalog.group(topic, event["group"], consistent=True)
            self.catalog.forget(topic, group)
            consumer = self.catalog.consumer(topic, group, event["consumer"])
        except NotFound:
            return {"exchange": None}
        if not consumer.is_called or consumer.state == ConsumerState.PENDING:
            return {"exchange": None}
        if consumer.kind == ConsumerKind.URL:
            consumer = self.secret_cipher.with_plain_secrets(topic, group, consumer, self.clock.now_ms())
        draft = strict_json.decoded(event["draft"], Draft) if "draft" in event else None
        batch = batch_of_one(topic, group, event["id"], draft, self.clock.now_ms()) if draft else None
        exchange = self.sender().ping(consumer, event["id"], _PING_SECONDS, batch)
        return {"exchange": msgspec.to_builtins(exchange, enc_hook=dict)}


def batch_of_one(topic: Topic, group: Group, id: str, draft: Draft, now_ms: int) -> PushBatch:
    """A message that was never produced, as a consumer would get it."""
    attempts = (Attempt(Message(id, 0, 0, now_ms, draft), 1),)
    return PushBatch(group.topic, group.name, group.payload, attempts, topic.max_body_bytes)
