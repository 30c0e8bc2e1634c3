"""Token buckets that all processes share, called accounts of permits."""

from __future__ import annotations

from typing import Protocol

from ..domain.token_bucket import Grant


class TokenBuckets(Protocol):
    """The permits of whatever has a rate limit, a topic by its uid or the handshakes with a host: an account for each,
    shared by all processes."""

    def take(self, account: str, limit: int, count: int, now_ms: int, seconds: int = 1) -> Grant:
        """Up to `count` permits from an account that gets `limit` in so many seconds: one write where nobody else
        takes at this moment, none where there is no permit."""
        ...
