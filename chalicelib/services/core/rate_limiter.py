"""Rate limits as token buckets. A topic or an access token has one *account*, a bucket that all processes share (a row,
store/token_buckets.py). Each process takes a few permits from it in advance, so that not each message costs a write."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from ...domain.topic import Topic
from ...ports.world import Clock
from ...store import TokenBuckets
from .expiring_cache import BoundedCache

_AHEAD_MS = 250  # permits are taken in advance for so much of this process's demand,
_MOST_AHEAD = 10  # but no more than this part of what all processes get in a second
_IN_HAND_MS = 500  # after that they are void
_SHORTEST_PAUSE_MS = 100
_LONGEST_PAUSE_MS = 400  # less than it takes to fill an account
_WORTH = 20  # a visit should bring this part of what all get in a second,
_WORTH_PERMITS = 10  # or so many


@dataclass(slots=True)
class _LocalTokenBucket:
    """The permits that this process has taken from one account. `demand`: how many were asked for since then; `extra`:
    how many were taken in advance."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    permits: int = 0
    good_until_ms: int = 0
    closed_until_ms: int = 0
    visited_ms: int = 0
    demand: int = 0
    extra: int = 0
    pause_ms: int = _SHORTEST_PAUSE_MS


class RateLimits:
    """The rate limits of topics and access tokens. One per process."""

    def __init__(self, token_buckets: TokenBuckets, clock: Clock) -> None:
        self._token_buckets = token_buckets
        self._clock = clock
        self._buckets: BoundedCache[str, _LocalTokenBucket] = BoundedCache()

    def admit(self, topic: Topic, count: int) -> int:
        """How many of `count` messages the topic's rate limit accepts now; all if it has none."""
        if topic.rate_limit is None or not count:
            return count
        return self.take(topic.uid, topic.rate_limit, count)

    def take(self, account: str, limit: int, count: int = 1) -> int:
        """Take up to `count` permits from an account that gets `limit` a second. Returns how many there were."""
        bucket = self._buckets.of(account, _LocalTokenBucket)
        with bucket.lock:
            now_ms = self._clock.now_ms()
            if not bucket.visited_ms <= now_ms < bucket.good_until_ms:
                bucket.permits = 0
            bucket.demand += count
            is_closed = bucket.visited_ms <= now_ms < bucket.closed_until_ms  # a clock may step back
            if bucket.permits < count and not is_closed:
                self._visit(bucket, account, limit, count - bucket.permits, now_ms)
            permits = min(count, bucket.permits)
            bucket.permits -= permits
            return permits

    def _visit(self, bucket: _LocalTokenBucket, account: str, limit: int, count: int, now_ms: int) -> None:
        """Take what is missing from the account, and in advance what the demand seen lately will need soon. (It may
        double from visit to visit, no more: two messages in one millisecond are no flood.)

        Where the account had too little, stay away: until it has a permit, and long enough that a visit is worth it.
        """
        lately = bucket.demand * _AHEAD_MS // max(1, now_ms - bucket.visited_ms)
        bucket.extra = min(lately, limit // _MOST_AHEAD, 2 * bucket.extra + 1)
        amount = max(count, bucket.extra)
        grant = self._token_buckets.take(account, limit, amount, now_ms)
        bucket.permits += grant.count
        bucket.good_until_ms = now_ms + _IN_HAND_MS
        bucket.visited_ms = bucket.closed_until_ms = now_ms
        bucket.demand = 0
        if grant.count == amount:
            return
        worth = min(_WORTH_PERMITS, limit // _WORTH)
        pause_ms = bucket.pause_ms * 2 if grant.count < worth else bucket.pause_ms // 2
        bucket.pause_ms = max(_SHORTEST_PAUSE_MS, min(pause_ms, _LONGEST_PAUSE_MS))
        bucket.closed_until_ms = now_ms + max(grant.wait_ms, bucket.pause_ms)
