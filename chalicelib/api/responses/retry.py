"""Retry policies."""

from typing import NotRequired, TypedDict

from ...domain import ladder
from ...domain.ladder import Retry
from .common import Count


class RetryView(TypedDict):
    """A retry policy. `ladder` is a name or a list of seconds; the last three fields are for `exponential`."""

    max_attempts: Count
    ladder: str | list[Count]
    jitter: float
    base_seconds: NotRequired[Count]
    factor: NotRequired[float]
    cap_seconds: NotRequired[Count]


def view(retry: Retry) -> RetryView:
    """A policy as it stands."""
    body: RetryView = {
        "max_attempts": retry.max_attempts,
        "ladder": list(retry.ladder) if isinstance(retry.ladder, tuple) else retry.ladder,
        "jitter": retry.jitter,
    }
    if retry.ladder == ladder.EXPONENTIAL:
        body["base_seconds"] = retry.base_seconds
        body["factor"] = retry.factor
        body["cap_seconds"] = retry.cap_seconds
    return body
