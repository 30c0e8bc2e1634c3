"""OpenTelemetry, if it is installed: a span for each send and each handled message, joined by `traceparent`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any


@cache
def _api() -> Any:
    """The modules that are needed; None: it is not installed."""
    try:
        from opentelemetry import propagate, trace
    except ImportError:
        return None
    return trace, propagate


def outgoing_headers() -> dict[str, str]:
    """`traceparent` of the present span; nothing where there is none."""
    headers: dict[str, str] = {}
    if api := _api():
        api[1].inject(headers)
    return {name: value for name, value in headers.items() if name.lower() == "traceparent"}


@contextmanager
def sending(topic: str, count: int) -> Iterator[None]:
    """The span of one send."""
    if not (api := _api()):
        yield
        return
    trace, _ = api
    facts = {"messaging.system": "headrace", "messaging.destination.name": topic}
    with trace.get_tracer("headrace").start_as_current_span(
        f"send {topic}",
        kind=trace.SpanKind.PRODUCER,
        attributes={**facts, "messaging.batch.message_count": count},
    ):
        yield


@contextmanager
def handling(topic: str, group: str, id: str, attempt: int, headers: Mapping[str, str]) -> Iterator[None]:
    """The span of one handled message, a child of the one that sent it. A handler that raises marks it as failed."""
    if not (api := _api()):
        yield
        return
    trace, propagate = api
    facts = {
        "messaging.system": "headrace",
        "messaging.destination.name": topic,
        "messaging.consumer.group.name": group,
        "messaging.message.id": id,
        "headrace.attempt": attempt,
    }
    with trace.get_tracer("headrace").start_as_current_span(
        f"process {topic}",
        context=propagate.extract(dict(headers)),
        kind=trace.SpanKind.CONSUMER,
        attributes=facts,
    ):
        yield
