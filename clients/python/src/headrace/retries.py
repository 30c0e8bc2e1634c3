"""When a call is tried again: a rule without clock or chance."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import HeadraceError

_ATTEMPTS = 5


@dataclass(frozen=True)
class Retries:
    """For how long one call is tried, and how long it waits in between: a random part of `base_seconds` doubled each
    time, up to `cap_seconds`, and never less than the service's `Retry-After`. A call ends when `total_seconds` are
    over, also in the middle of a try, or after `attempts`, the first included. Unless these are given, a send goes on
    for `total_seconds`; other calls, whose callers can wait and ask again, are tried 5 times."""

    attempts: int | None = None
    base_seconds: float = 0.2
    cap_seconds: float = 10.0
    total_seconds: float = 120.0

    def pause(
        self, error: HeadraceError, tries: int, seconds: float, chance: float, *, is_send: bool = True
    ) -> float | None:
        """Seconds to wait before the next try, after `tries` of them; None: give up. `chance` is in [0, 1)."""
        most = _ATTEMPTS if self.attempts is None and not is_send else self.attempts
        if not error.retryable or (most is not None and tries >= most):
            return None
        step = min(self.cap_seconds, self.base_seconds * 2.0 ** min(tries - 1, 100))
        wait = max(step * (0.5 + chance / 2), error.retry_after or 0.0)
        return wait if seconds + wait <= self.total_seconds else None


NEVER = Retries(attempts=1)
