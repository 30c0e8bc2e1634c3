"""Retry ladders as data: how long to wait after the n-th failed attempt."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .limits import DEFAULT_MAX_ATTEMPTS, MAX_LADDER_STEPS

NAMED: Mapping[str, tuple[int, ...]] = {
    "fixed-30": (30, 30, 30),
    "jmq": tuple(3**n for n in range(10)),
    "notify": (15, 180, 600, 1800, 1800, 3600, 7200, 21600, 54000),
    "rocketmq": (10, 30, *(60 * n for n in range(1, 11)), 1200, 1800, 3600, 7200),
}
EXPONENTIAL = "exponential"
_ATTEMPTS = {"fixed-30": 4}  # DMQ retries three times


@dataclass(frozen=True, slots=True)
class Retry:
    """A retry policy: how many attempts in all, and the waits between them in seconds. They count from an attempt's
    failure or from its start (`steps_from`)."""

    max_attempts: int
    ladder: str | tuple[int, ...]
    jitter: float = 0.1
    base_seconds: int = 1
    factor: float = 2.0
    cap_seconds: int = 3600
    steps_from: str = "failure"


def default_attempts(ladder: str | tuple[int, ...]) -> int:
    """How many attempts a policy allows that names its ladder, but no number."""
    return _ATTEMPTS.get(ladder, DEFAULT_MAX_ATTEMPTS) if isinstance(ladder, str) else DEFAULT_MAX_ATTEMPTS


def exponential(base_seconds: int, factor: float, cap_seconds: int) -> tuple[int, ...]:
    """base, base·factor, base·factor² … up to the cap, which is the last step (it repeats)."""
    steps: list[int] = []
    step = float(base_seconds)
    while step < cap_seconds and len(steps) < MAX_LADDER_STEPS - 1:
        steps.append(round(step))
        if factor <= 1:
            return tuple(steps)
        step *= factor
    return (*steps, cap_seconds)


def steps(retry: Retry) -> tuple[int, ...]:
    """The waits in seconds; the last one repeats when attempts outnumber steps."""
    if isinstance(retry.ladder, tuple):
        return retry.ladder
    if retry.ladder == EXPONENTIAL:
        return exponential(retry.base_seconds, retry.factor, retry.cap_seconds)
    return NAMED[retry.ladder]


def overridden(
    retry: Retry, ladder: tuple[int, ...] | None, jitter: float | None, steps_from: str | None = None
) -> Retry:
    """A policy with a message's own ladder, jitter and `steps_from`, where it has them."""
    own: dict[str, Any] = {"ladder": ladder, "jitter": jitter, "steps_from": steps_from}
    return replace(retry, **{name: value for name, value in own.items() if value is not None})


def waits(retry: Retry) -> tuple[int, ...]:
    """All waits up to the last attempt: one fewer than attempts."""
    return tuple(wait_seconds(retry, attempt) for attempt in range(1, retry.max_attempts))


def wait_seconds(retry: Retry, failed_attempt: int) -> int:
    """The wait after the n-th failed attempt (from 1), without jitter."""
    ladder = steps(retry)
    return ladder[min(failed_attempt, len(ladder)) - 1]


def jittered_wait_ms(retry: Retry, failed_attempt: int, message_id: str) -> int:
    """The wait after the n-th failed attempt (from 1): the step, never less, and up to `jitter` of it more.

    The addition is computed from the message id and the attempt, so that it is the same at every call.
    """
    step_ms = wait_seconds(retry, failed_attempt) * 1000
    digest = hashlib.blake2b(f"{message_id}/{failed_attempt}".encode(), digest_size=6).digest()
    return step_ms + int(step_ms * retry.jitter * int.from_bytes(digest, "big") / 2**48)


def next_wait_ms(
    retry: Retry, failed_attempt: int, message_id: str, retry_after_ms: int | None, took_ms: int = 0
) -> int:
    """The wait after the failure of an attempt that took so long: what the ladder gives, or the subscriber's
    Retry-After if that is longer."""
    spent_ms = max(0, took_ms) if retry.steps_from == "start" else 0
    return max(jittered_wait_ms(retry, failed_attempt, message_id) - spent_ms, retry_after_ms or 0)
