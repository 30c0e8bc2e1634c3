"""When a call is tried again: a rule without clock or chance."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import HeadraceError


@dataclass(frozen=True)
class Retries:
    """How often one call is tried (`attempts`, the first included) and how long it waits in between: a random part of
    `base_seconds` doubled each time, up to `cap_seconds`, and never less than the service's `Retry-After`. A call ends
    when `total_seconds` are over, also in the middle of a try."""

    attempts: int = 5
    base_seconds: float = 0.2
    cap_seconds: float = 10.0
    total_seconds: float = 120.0

    def pause(self, error: HeadraceError, tries: int, seconds: float, chance: float) -> float | None:
        """Seconds to wait before the next try, after `tries` of them; None: give up. `chance` is in [0, 1)."""
        if not error.retryable or tries >= self.attempts:
            return None
        step = min(self.cap_seconds, self.base_seconds * 2.0 ** (tries - 1))
        wait = max(step * (0.5 + chance / 2), error.retry_after or 0.0)
        return wait if seconds + wait <= self.total_seconds else None


NEVER = Retries(attempts=1)
