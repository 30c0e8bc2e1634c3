"""For consumers that are functions on AWS Lambda: `lambda_handler = function(mail)`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import tracing, typed
from ..calls import encode
from ..consume.handlers import Handler, bound, is_async
from ..consume.settings import Middleware
from .events import Event

_LOG = logging.getLogger("headrace")
Failures = dict[str, list[dict[str, str]]]


def function(
    handler: Handler, *, middleware: Sequence[Middleware] = ()
) -> Callable[[Mapping[str, Any], Any], Failures]:
    """A Lambda handler that gives each message of a batch to `handler`, as a consumer's, and names those that failed.
    (A function can't say when, nor bury: `Retry` and `Bury` fail like all else.)"""
    call, handler_is_async = bound(handler, middleware), is_async(handler)

    def handle(event: Mapping[str, Any], context: Any = None) -> Failures:
        failures = []
        for each in event["messages"]:
            message = typed.decoded(encode({**each, "topic": event["topic"], "group": event["group"]}), Event)
            try:
                with tracing.handling(
                    message.topic, message.group, message.id, message.attempt, message.headers
                ):
                    result = call(message)
                    if handler_is_async:
                        asyncio.run(result)
            except Exception:
                _LOG.exception(
                    "%s/%s %s attempt %d", message.topic, message.group, message.id, message.attempt
                )
                failures.append({"itemIdentifier": message.id})
        return {"batchItemFailures": failures}

    return handle
