"""ports.TokenBuckets in memory."""

from __future__ import annotations

import threading

from ...domain import token_bucket
from ...domain.token_bucket import Grant


class MemoryTokenBuckets:
    """ports.TokenBuckets as a dict. `writes` counts the writes that DynamoDB would have made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given_until: dict[str, int] = {}
        self.writes = 0

    def take(self, account: str, limit: int, count: int, now_ms: int, seconds: int = 1) -> Grant:
        with self._lock:
            grant, after_ns = token_bucket.take(
                self._given_until.get(account, 0), limit, count, now_ms, seconds
            )
            if grant.count:
                self._given_until[account] = after_ns
                self.writes += 1
            return grant
