"""Rate limits: a topic's, or a token's, shared account of permits, and the few that each process has in hand."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from ...domain.topic import Topic
from ...ports.rates import Rates
from ...ports.world import Clock
from ..core.expiring_cache import BoundedCache

_AHEAD_MS = 250  # permits are taken in advance for so much of this process's demand,
_MOST_AHEAD = 10  # but no more than this part of what all processes get in a second
_IN_HAND_MS = 500  # after that they are void
_SHORTEST_PAUSE_MS = 100
_LONGEST_PAUSE_MS = 400  # less than it takes to fill an account
_WORTH = 20  # a visit should bring this part of what all get in a second,
_WORTH_PERMITS = 10  # or so many


@dataclass(slots=True)
class _LocalTokenBucket:
    """What this process has in hand of one account, and knows of the demand since its last visit to the account."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    permits: int = 0
    good_until_ms: int = 0
    closed_until_ms: int = 0
    visited_ms: int = 0
    asked: int = 0
    ahead: int = 0
    pause_ms: int = _SHORTEST_PAUSE_MS


class RateLimits:
    """Lets messages of a topic, or calls of a token, in, at far less than a write for each. One per process."""

    def __init__(self, rates: Rates, clock: Clock) -> None:
        self._rates = rates
        self._clock = clock
        self._purses: BoundedCache[str, _LocalTokenBucket] = BoundedCache()

    def admit(self, topic: Topic, count: int) -> int:
        """How many of `count` messages the topic's rate lets in now; all where it has no limit."""
        if topic.rate_limit is None or not count:
            return count
        return self.take(topic.uid, topic.rate_limit, count)

    def take(self, account: str, limit: int, count: int = 1) -> int:
        """How many of `count` permits there are now in an account that gets `limit` a second."""
        purse = self._purses.of(account, _LocalTokenBucket)
        with purse.lock:
            now_ms = self._clock.now_ms()
            if now_ms >= purse.good_until_ms:
                purse.permits = 0
            purse.asked += count
            if purse.permits < count and now_ms >= purse.closed_until_ms:
                self._visit(purse, account, limit, count - purse.permits, now_ms)
            permits = min(count, purse.permits)
            purse.permits -= permits
            return permits

    def _visit(self, purse: _LocalTokenBucket, account: str, limit: int, count: int, now_ms: int) -> None:
        """Take what is missing from the account, and in advance what the demand seen lately will need soon. (It may
        double from visit to visit, no more: two messages in one millisecond are no flood.)

        Where the account had too little, stay away: until it has a permit, and long enough that a visit is worth it.
        """
        lately = purse.asked * _AHEAD_MS // max(1, now_ms - purse.visited_ms)
        purse.ahead = min(lately, limit // _MOST_AHEAD, 2 * purse.ahead + 1)
        amount = max(count, purse.ahead)
        grant = self._rates.take(account, limit, amount, now_ms)
        purse.permits += grant.count
        purse.good_until_ms = now_ms + _IN_HAND_MS
        purse.visited_ms, purse.asked = now_ms, 0
        if grant.count == amount:
            return
        worth = min(_WORTH_PERMITS, limit // _WORTH)
        longer, shorter = purse.pause_ms * 2, purse.pause_ms // 2
        purse.pause_ms = (
            min(longer, _LONGEST_PAUSE_MS) if grant.count < worth else max(shorter, _SHORTEST_PAUSE_MS)
        )
        purse.closed_until_ms = now_ms + max(grant.wait_ms, purse.pause_ms)
