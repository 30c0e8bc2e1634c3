"""A service in a few lines, for one consumer: it answers as a test says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from headrace import Message, errors
from headrace.consume.consumer import Consumer
from headrace.consume.settings import ConsumerSettings
from headrace.models import Received

BUSY = {"code": "UNAVAILABLE", "status": 503, "detail": "Busy, try again.", "retryable": True}


def message(name: str, attempt: int = 1) -> Message:
    fields = {
        "id": name,
        "body": 1,
        "receipt": f"r-{name}",
        "attempt": attempt,
        "accepted_at": "2026-11-22T00:00:00Z",
    }
    return msgspec.json.decode(msgspec.json.encode(fields), type=Message)


class Service:
    """Answers each `receive` with the next of these, and stops the consumer then. An error is raised."""

    def __init__(self, *answers: Sequence[Message] | errors.HeadraceError, **group: Any) -> None:
        self.answers = list(answers)
        self.group: Any = SimpleNamespace(
            **{"mode": "queue", "lease_seconds": None, "filter": "*", "offline": "keep"} | group
        )
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.settled: list[tuple[Any, ...]] = []
        self.consumer: Consumer | None = None
        self.missing = False

    def run(self, handler: Callable[..., Any], **settings: Any) -> Service:
        options: dict[str, Any] = {"rest": 0, "ack_linger": 0, "name": None, **settings}
        self.consumer = Consumer(ConsumerSettings("orders", "mailer", **options), handler)
        self.consumer.run(cast(Any, self))
        return self

    def calls_of(self, name: str) -> list[dict[str, Any]]:
        return [options for call, options in self.calls if call == name]

    def get_group(self, topic: str, group: str) -> Any:
        if self.missing:
            raise errors.GroupNotFound("GROUP_NOT_FOUND", "There is none.")
        return self.group

    def put_group(self, topic: str, group: str, **options: Any) -> Any:
        self.calls.append(("put_group", options))
        return self.group

    def get_topic(self, topic: str) -> Any:
        return SimpleNamespace(lease_seconds=30)

    def put_consumer(self, topic: str, group: str, name: str, **options: Any) -> Any:
        self.calls.append(("put_consumer", {"name": name, **options}))
        return SimpleNamespace(name=name)

    def delete_consumer(self, topic: str, group: str, name: str) -> None:
        self.calls.append(("delete_consumer", {"name": name}))

    def receive(self, topic: str, group: str, **options: Any) -> Received:
        self.calls.append(("receive", options))
        assert self.consumer is not None
        answer = self.answers.pop(0) if self.answers else ()
        if not self.answers:
            self.consumer.stop()
        if isinstance(answer, errors.HeadraceError):
            raise answer
        return cast(Received, answer or Received())

    def ack(self, topic: str, group: str, *messages: Message) -> list[Any]:
        self.settled.append(("ack", *(each.id for each in messages)))
        return [SimpleNamespace(ok=True, error=None) for _ in messages]

    def nack(self, topic: str, group: str, *messages: Message, **options: Any) -> list[Any]:
        self.settled.append(("nack", *(each.id for each in messages), options))
        return [SimpleNamespace(ok=True, error=None) for _ in messages]


def ignored(_: Message) -> None:
    pass
