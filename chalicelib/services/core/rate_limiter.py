"""Rate limits as token buckets. A topic, a group or an access token has one *account*, a bucket that all processes
share (a row, store/token_buckets.py). Of a topic's or token's, each process takes a few permits in advance, so that not
each message costs a write; of a group's it takes those of one claim."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ...domain import token_bucket
from ...domain.topic import Group, Topic
from ...ports.world import Clock, Random
from ...store import TokenBuckets
from .expiring_cache import BoundedCache

_AHEAD_MS = 250  # permits are taken in advance for so much of this process's demand,
_MOST_AHEAD = 10  # but no more than this part of what all processes get in a second
_WORTH = 20  # a visit should bring this part of what all get in a second,
_WORTH_PERMITS = 10  # or so many
_ALL = 1 << 40


class _Use(NamedTuple):
    """How accounts of a kind are used: what an idle one holds (see `token_bucket.take`), how long permits in hand are
    good, and for how long a process stays away from an empty one, which is less than it takes to fill it."""

    burst: float
    in_hand_ms: int
    shortest_pause_ms: int
    longest_pause_ms: int


_CALLS = _Use(token_bucket.BURST, 500, 100, 400)
_CLAIMS = _Use(0.2, 50, 50, 150)  # in any t seconds at most rate * (t + 0.25) + 2


@dataclass(slots=True)
class _Bucket:
    """The permits that this process has taken from one account. `demand`: how many were asked for since then; `extra`:
    how many were taken in advance."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    permits: int = 0
    good_until_ms: int = 0
    closed_until_ms: int = 0
    visited_ms: int = 0
    demand: int = 0
    extra: int = 0
    pause_ms: int = 0


class RateLimits:
    """The rate limits of topics, groups and access tokens. One per process."""

    def __init__(self, token_buckets: TokenBuckets, clock: Clock, random: Random) -> None:
        self._token_buckets = token_buckets
        self._clock = clock
        self._random = random
        self._buckets: BoundedCache[str, _Bucket] = BoundedCache()

    def admit(self, topic: Topic, count: int) -> int:
        """How many of `count` messages the topic's rate limit accepts now; all if it has none."""
        if topic.rate_limit is None or not count:
            return count
        return self.take(topic.uid, topic.rate_limit, count)

    def admit_firings(self, rates: Mapping[str, int], count: int) -> int:
        """How many of `count` messages of schedules the accounts with these rates allow now. They may take more in
        advance than producers, who would leave them nothing."""
        for account, rate in rates.items():
            if count:
                burst, now_ms = max(1.0, 2.9 / rate), self._clock.now_ms()
                count = self._token_buckets.take(account, rate, count, now_ms, 1, burst).count
        return count

    def most(self, group: Group, most: int) -> int:
        """How many of `most` messages one claim could be granted at all."""
        if group.rate_limit is None:
            return most
        return min(most, max(1, int(group.rate_limit * _CLAIMS.burst)))

    def permits(self, group: Group, count: int) -> int:
        """How many of `count` messages a claim may grant now; all if the group has no rate limit."""
        if group.rate_limit is None or not count:
            return count
        return self.take(account_of(group), group.rate_limit, count, _CLAIMS)

    def put_back(self, group: Group, count: int) -> None:
        """The permits of a claim that lost its race, or granted less: for the next claim of this process, if it comes
        at once."""
        if group.rate_limit is not None and count:
            bucket = self._buckets.of(account_of(group), _Bucket)
            with bucket.lock:
                bucket.permits += count

    def free_ms(self, group: Group) -> int:
        """When to ask for the group's next permit; 0: at once, as far as this process knows."""
        if group.rate_limit is None:
            return 0
        bucket, now_ms = self._buckets.of(account_of(group), _Bucket), self._clock.now_ms()
        has_permits = bucket.permits and now_ms < bucket.good_until_ms
        is_closed = bucket.visited_ms <= now_ms < bucket.closed_until_ms and not has_permits
        return bucket.closed_until_ms if is_closed else 0

    def is_in_use(self, group: Group) -> bool:
        """Had the group at least half of what its rate limit allows? Then it holds up what waits. Reads the account."""
        if group.rate_limit is None:
            return False
        account, now_ms = self._token_buckets.given_until_ns(account_of(group)), self._clock.now_ms()
        free = token_bucket.take(account, group.rate_limit, _ALL, now_ms, 1, _CLAIMS.burst)[0].count
        return 2 * free <= self.most(group, _ALL)

    def take(self, account: str, limit: float, count: int = 1, use: _Use = _CALLS) -> int:
        """Take up to `count` permits from an account that gets `limit` a second. Returns how many there were."""
        bucket = self._buckets.of(account, _Bucket)
        with bucket.lock:
            now_ms = self._clock.now_ms()
            if not bucket.visited_ms <= now_ms < bucket.good_until_ms:
                bucket.permits = 0
            bucket.demand += count
            is_closed = bucket.visited_ms <= now_ms < bucket.closed_until_ms  # a clock may step back
            is_short = bucket.permits < count if use is _CALLS else not bucket.permits
            if is_short and not is_closed:
                self._visit(bucket, account, limit, count - bucket.permits, now_ms, use)
            permits = min(count, bucket.permits)
            bucket.permits -= permits
            return permits

    def _visit(self, bucket: _Bucket, account: str, limit: float, count: int, now_ms: int, use: _Use) -> None:
        """Take what is missing from the account, and of calls' in advance what the demand seen lately will need soon.
        (It may double from visit to visit, no more: two messages in one millisecond are no flood.)

        Where the account had too little, stay away: until it has a permit, and long enough that a visit is worth it.
        Processes that claim do not come back all at the same moment.
        """
        if use is _CALLS:
            lately = bucket.demand * _AHEAD_MS // max(1, now_ms - bucket.visited_ms)
            bucket.extra = min(lately, int(limit) // _MOST_AHEAD, 2 * bucket.extra + 1)
        amount = max(count, bucket.extra)
        grant = self._token_buckets.take(account, limit, amount, now_ms, 1, use.burst)
        bucket.permits += grant.count
        bucket.good_until_ms = now_ms + use.in_hand_ms
        bucket.visited_ms = bucket.closed_until_ms = now_ms
        bucket.demand = 0
        if grant.count == amount:
            return
        worth = min(_WORTH_PERMITS, int(limit) // _WORTH)
        pause_ms = bucket.pause_ms * 2 if grant.count < worth else bucket.pause_ms // 2
        bucket.pause_ms = max(use.shortest_pause_ms, min(pause_ms, use.longest_pause_ms))
        bucket.closed_until_ms = now_ms + max(grant.wait_ms, bucket.pause_ms)
        if use is _CLAIMS:
            jitter_ms = max(use.shortest_pause_ms, min(250, int(250 / limit)))
            bucket.closed_until_ms += self._random.below(jitter_ms)


def account_of(group: Group) -> str:
    """The name of a group's account. Another rate has another one, so a change leaves no debt."""
    return f"group#{group.uid}#{group.rate_limit}"
