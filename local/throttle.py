"""API Gateway's bound on calls that need no token: so many a second for each."""

from __future__ import annotations

import threading

from chalicelib.domain import token_bucket


class Throttle:
    """An account of permits for each call, by method and route. Safe for threads."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._lock = threading.Lock()
        self._given_until_ns: dict[tuple[str, str], int] = {}

    def lets_through(self, method: str, route: str, now_seconds: float) -> bool:
        """May this call be made now? Half a second's worth may come at once."""
        with self._lock:
            before = self._given_until_ns.get((method, route), 0)
            grant, after = token_bucket.take(before, self._per_second, 1, round(now_seconds * 1000))
            self._given_until_ns[method, route] = after
        return bool(grant.count)
