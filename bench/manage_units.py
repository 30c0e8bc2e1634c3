"""Units of the calls that people make: settings, consumers, what waits, dead letters. The audit row is among them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .figures import Figure, without_target
from .stage import say, stage
from .units import GROUP, TOPIC, Bench, cost_text

_CONSUMER = f"{GROUP}/consumers/{{consumer}}"
_MESSAGE = f"{TOPIC}/messages/{{id}}"
_LETTER = f"{GROUP}/dead-letters/{{id}}"
_LATER = {"delay_seconds": 3_600}


def measure(endpoint: str, verbose: bool = False) -> Iterator[Figure]:
    """One call each, warm, on a topic of one shard."""
    say("units: manage")
    with stage(endpoint) as target:
        bench = Bench(target.deps)
        bench.topic("t", shards=1)
        bench.group("t", "g", **{"from": "earliest"})
        for work, method, path, body, names in [
            *_setting_calls(),
            *_waiting_message_calls(bench),
            *_dead_letter_calls(bench),
        ]:
            yield without_target(work, cost_text(bench.cost(method, path, body, topic="t", **names)))


_Call = tuple[str, str, str, Any, dict[str, str]]


def _setting_calls() -> Iterator[_Call]:
    g = {"group": "g"}
    c = {**g, "consumer": "c"}
    yield "store a topic as it is", "PUT", TOPIC, {"shards": 1}, {}
    yield "change a topic", "PUT", TOPIC, {"shards": 1, "lease_seconds": 31}, {}
    yield "create a group", "PUT", GROUP, {"from": "latest"}, {"group": "other"}
    yield "delete a group, one shard", "DELETE", GROUP, None, {"group": "other"}
    yield "register a consumer that pulls", "PUT", _CONSUMER, {}, c
    yield "a heartbeat", "POST", f"{_CONSUMER}/heartbeat", {}, c
    yield "remove a consumer", "DELETE", _CONSUMER, None, c
    yield "pause a group", "POST", f"{GROUP}/pause", {}, g
    yield "resume a group", "POST", f"{GROUP}/resume", {}, g
    yield "seek, one shard", "POST", f"{GROUP}/seek", {"to": "earliest"}, g


def _waiting_message_calls(b: Bench) -> Iterator[_Call]:
    for work, method, body in (
        ("edit the body of a delayed message", "PATCH", {"body": 1}),
        ("postpone a delayed message", "PATCH", {"deliver_at": "2030-01-01T00:00:00.000Z"}),
        ("cancel a delayed message", "DELETE", None),
    ):
        yield work, method, _MESSAGE, body, {"id": _produce(b, **_LATER)}
    yield "edit a message in the log", "PATCH", _MESSAGE, {"body": 1}, {"id": _produce(b)}
    yield "cancel a message in the log", "DELETE", _MESSAGE, None, {"id": _produce(b)}


def _dead_letter_calls(b: Bench) -> Iterator[_Call]:
    g = {"group": "g"}
    for _ in range(3):
        _produce(b)
    messages = b.api.call("POST", f"{GROUP}/receive", {"max": 100}, topic="t", **g)["messages"][-3:]
    b.api.call(
        "POST",
        f"{GROUP}/nack",
        {"receipts": [message["receipt"] for message in messages], "dead_letter": True},
        topic="t",
        **g,
    )
    redriven, edited, deleted = (message["id"] for message in messages)
    yield "redrive a dead letter", "POST", f"{GROUP}/dead-letters/redrive", {"ids": [redriven]}, g
    yield "edit a dead letter", "PATCH", _LETTER, {"body": 1}, {**g, "id": edited}
    yield "delete a dead letter", "DELETE", _LETTER, None, {**g, "id": deleted}


def _produce(b: Bench, **fields: Any) -> str:
    body = {"body": b.text(300), **fields}
    id: str = b.api.call("POST", f"{TOPIC}/messages", body, topic="t")["id"]
    return id
