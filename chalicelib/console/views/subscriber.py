"""One subscriber: its latest attempts as ticks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...services.inspect.trace import PastAttempt

WIDTH, HEIGHT = 1_000, 40
MOST_TICKS = 50
_STEP = WIDTH // MOST_TICKS
_SHORTEST = 6


@dataclass(kw_only=True, frozen=True, slots=True)
class Tick:
    """An attempt as a bar: the longer it took, the taller."""

    kind: str
    x: int
    y: int
    height: int
    attempt: PastAttempt


def ticks(attempts: Sequence[PastAttempt]) -> list[Tick]:
    """The newest attempts, the oldest of them left. `attempts` come the newest first."""
    latest = attempts[:MOST_TICKS][::-1]
    longest = max((each.duration_ms for each in latest), default=0) or 1
    left_edge = WIDTH - _STEP * len(latest)
    return [_tick(each, left_edge + _STEP * n, longest) for n, each in enumerate(latest)]


def _tick(attempt: PastAttempt, x: int, longest_ms: int) -> Tick:
    height = _SHORTEST + round((HEIGHT - _SHORTEST) * attempt.duration_ms / longest_ms)
    return Tick(
        kind="ok" if attempt.outcome == "SUCCESS" else "fail",
        x=x,
        y=HEIGHT - height,
        height=height,
        attempt=attempt,
    )
