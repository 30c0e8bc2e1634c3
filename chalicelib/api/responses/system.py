"""Health, and what a ladder comes to."""

from typing import Literal, TypedDict

from ...domain import ladder
from .common import Count


class HealthView(TypedDict):
    """Everything is well."""

    status: Literal["ok"]
    store: Literal["ok"]


class LadderView(TypedDict):
    """The steps of a ladder, and the waits that so many attempts make of them; each with their sum."""

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
