"""Health, and what a ladder comes to."""

from typing import Literal, TypedDict

from ...domain import ladder
from .common import Count


class HealthView(TypedDict):
    """Every table can be read."""

    status: Literal["ok"]
    store: Literal["ok"]


class LadderView(TypedDict):
    """A ladder's steps, and the delays between the given number of attempts; each with their sum."""

    ladder: str
    steps_seconds: list[Count]
    sum_seconds: Count
    max_attempts: Count
    waits_seconds: list[Count]
    waits_sum_seconds: Count


def preview(name: str, retry: ladder.Retry) -> LadderView:
    """A ladder's steps and waits."""
    steps, waits = ladder.steps(retry), ladder.waits(retry)
    return {
        "ladder": name,
        "steps_seconds": list(steps),
        "sum_seconds": sum(steps),
        "max_attempts": retry.max_attempts,
        "waits_seconds": list(waits),
        "waits_sum_seconds": sum(waits),
    }
