"""Retry ladders as data: how long to wait after the n-th failed attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .limits import MAX_LADDER_STEPS, MAX_STEP_SECONDS

NAMED: Mapping[str, tuple[int, ...]] = {
    "fixed-30": (30, 30, 30),
    "jmq": tuple(3**n for n in range(10)),
    "notify": (15, 180, 600, 1800, 1800, 3600, 7200, 21600, 54000),
    "rocketmq": (10, 30, *(60 * n for n in range(1, 11)), 1200, 1800, 3600, 7200),
}
EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True)
class Retry:
    """A retry policy: how many attempts in all, and the waits between them in seconds."""

    max_attempts: int
    ladder: str | tuple[int, ...]
    jitter: float = 0.1
    base_seconds: int = 1
    factor: float = 2.0
    cap_seconds: int = 3600


def exponential(base_seconds: int, factor: float, cap_seconds: int) -> tuple[int, ...]:
    """base, base·factor, base·factor² … up to the cap, which is the last step (it repeats)."""
    steps: list[int] = []
    step = float(base_seconds)
    while step < cap_seconds and len(steps) < MAX_LADDER_STEPS - 1:
        steps.append(max(1, round(step)))
        if factor <= 1:
            return tuple(steps)
        step *= factor
    return (*steps, min(cap_seconds, MAX_STEP_SECONDS))


def steps(retry: Retry) -> tuple[int, ...]:
    """The waits in seconds; the last one repeats when attempts outnumber steps."""
    if isinstance(retry.ladder, tuple):
        return retry.ladder
    if retry.ladder == EXPONENTIAL:
        return exponential(retry.base_seconds, retry.factor, retry.cap_seconds)
    return NAMED[retry.ladder]


def wait_seconds(retry: Retry, failed_attempt: int) -> int:
    """The wait after the n-th failed attempt (from 1), without jitter."""
    waits = steps(retry)
    return waits[min(failed_attempt, len(waits)) - 1]
