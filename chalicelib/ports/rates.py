"""Accounts of permits."""

from __future__ import annotations

from typing import Protocol

from ..domain.rate import Grant


class Rates(Protocol):
    """The permits of topics that have a rate limit: an account for each, shared by all processes."""

    def take(self, topic_uid: str, limit: int, count: int, now_ms: int) -> Grant:
        """Up to `count` permits from an account that gets `limit` a second: one write where nobody else takes at
        this moment, none where there is no permit."""
        ...
