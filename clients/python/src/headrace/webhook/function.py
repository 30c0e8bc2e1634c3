"""For consumers that are functions on AWS Lambda: `lambda_handler = function(mail)`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import _background, typed
from ..calls import encode
from ..consume.handlers import Handler
from ..consume.settings import Middleware
from .attempts import Attempts, Outcome, TimeUp
from .events import Event

_LOG = logging.getLogger("headrace")
_ANSWER_SECONDS = 0.5
"""What the answer itself may take."""
Failures = dict[str, list[dict[str, str]]]


def function(
    handler: Handler, *, middleware: Sequence[Middleware] = ()
) -> Callable[[Mapping[str, Any], Any], Failures]:
    """A Lambda handler that gives each message of a batch to `handler`, as a consumer's, and names those that failed.
    (A function can't say when, nor bury: `Retry` and `Bury` fail like all else.)

    It answers before Lambda's time is up, because all messages of an unfinished call come again: what would take too
    long is named as failed. It begins no message if less time is left than the longest took; async handlers are
    cancelled."""
    attempts = Attempts(handler, middleware)

    def handle(event: Mapping[str, Any], context: Any = None) -> Failures:
        place = {"topic": event["topic"], "group": event["group"]}
        events = [typed.decoded(encode({**each, **place}), Event) for each in event["messages"]]
        outcomes = _outcomes(attempts, events, getattr(context, "get_remaining_time_in_millis", None))
        if given_back := sum(isinstance(outcome, TimeUp) for outcome in outcomes):
            facts = (event["topic"], event["group"], given_back, len(events))
            _LOG.warning("%s/%s: %d of %d messages go back: the function's time is nearly up", *facts)
        failures = (each for each, outcome in zip(events, outcomes, strict=True) if outcome is not None)
        return {"batchItemFailures": [{"itemIdentifier": each.id} for each in failures]}

    return handle


def _outcomes(
    attempts: Attempts, events: Sequence[Event], millis_left: Callable[[], int] | None
) -> list[Outcome]:
    if millis_left is None:
        return attempts.all(events)
    if attempts.is_async:
        seconds = max(0.0, millis_left() / 1000 - _ANSWER_SECONDS)
        return _background.run(attempts.all_async(events, seconds))
    outcomes: list[Outcome] = []
    longest = 0.0
    for event in events:
        before = millis_left() / 1000
        is_enough = before >= longest + _ANSWER_SECONDS
        outcomes.append(attempts.one(event) if is_enough else TimeUp())
        longest = max(longest, before - millis_left() / 1000)
    return outcomes
