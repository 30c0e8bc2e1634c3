"""The account of a rate limit, and how processes share it: exact over ten seconds, at few writes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import accumulate
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chalicelib.domain import token_bucket
from chalicelib.domain.token_bucket import Grant
from chalicelib.services.core.rate_limiter import RateLimits
from chalicelib.store.token_buckets import TokenBuckets
from tests.support import factories as make
from tests.support.clock import START_MS, ManualClock, SeededRandom
from tests.support.embedded import embedded_dynamo

WINDOW_MS = 10_000

asks = st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 400)), min_size=1, max_size=60)
limits = st.sampled_from((1, 2, 3, 7, 10, 100, 999, 5_000, 10**6, 10**12))


@given(limit=limits, requests=asks)
def test_no_window_gets_more_than_its_share_and_a_burst(limit: int, requests: list[tuple[int, int]]) -> None:
    state, now_ms = 0, START_MS
    grants: list[tuple[int, int]] = []
    for later_ms, count in requests:
        now_ms += later_ms
        grant, state, _ = token_bucket.take(state, limit, count, now_ms)
        assert 0 <= grant.count <= count
        grants.append((now_ms, grant.count))
    for first, (start_ms, _) in enumerate(grants):
        for last in range(first, len(grants)):
            seconds = (grants[last][0] - start_ms) / 1000
            total = sum(count for _, count in grants[first : last + 1])
            assert total <= limit * (seconds + max(0.5, 1.9 / limit)) * (1 + 1e-5)


@given(limit=limits.filter(lambda limit: limit <= 5_000), requests=asks)
def test_a_permit_comes_when_it_was_told_and_not_before(limit: int, requests: list[tuple[int, int]]) -> None:
    state, now_ms = 0, START_MS
    for later_ms, count in requests:
        now_ms += later_ms
        grant, state, _ = token_bucket.take(state, limit, count, now_ms)
        if grant.count < count:
            assert 0 < grant.wait_ms <= 1000
            assert token_bucket.take(state, limit, 1, now_ms + grant.wait_ms)[0].count == 1
            assert token_bucket.take(state, limit, 1, now_ms + grant.wait_ms - 1)[0].count == 0
        else:
            assert grant.wait_ms == 0


@pytest.mark.parametrize(
    ("limit", "permits"), [(1, 1), (2, 1), (3, 1), (4, 2), (10, 5), (100, 50), (5_000, 2_500)]
)
def test_an_idle_account_holds_half_a_seconds_permits(limit: int, permits: int) -> None:
    assert token_bucket.take(0, limit, 10_000, START_MS)[0].count == permits


class Counting(TokenBuckets):
    """`writes` counts what was written: each grant."""

    writes = 0

    def take(self, *account: Any, **more: Any) -> Grant:
        grant = super().take(*account, **more)
        self.writes += grant.count > 0
        return grant


class Fleet:
    """Some processes that share one topic's account."""

    def __init__(self, limit: int, processes: int, seed: int = 1) -> None:
        self.clock = ManualClock()
        self.token_buckets = Counting(embedded_dynamo())
        self.limit = limit
        self.topic = make.topic(rate_limit=limit)
        chance = SeededRandom(seed)
        self.members = [RateLimits(self.token_buckets, self.clock, chance) for _ in range(processes)]
        self.random = random.Random(seed)
        self.accepted: list[int] = []  # by millisecond

    def run(self, seconds: int, demand: Callable[[int], Iterator[tuple[int, int]]]) -> None:
        """`demand(ms)` says who asks for how many in this millisecond."""
        for ms in range(seconds * 1000):
            self.accepted.append(sum(self.members[i].admit(self.topic, n) for i, n in demand(ms)))
            self.clock.advance(1)

    def shared(self, times: float, batch: int = 1) -> Callable[[int], Iterator[tuple[int, int]]]:
        """Random demand of so many times the limit, spread over all."""
        a_millisecond = self.limit * times / 1000 / batch

        def demand(_: int) -> Iterator[tuple[int, int]]:
            count = int(a_millisecond) + (self.random.random() < a_millisecond % 1)
            return ((self.random.randrange(len(self.members)), batch) for _ in range(count))

        return demand

    def windows(self) -> list[int]:
        """What was accepted in every ten seconds."""
        sums = [0, *accumulate(self.accepted)]
        return [sums[i] - sums[i - WINDOW_MS] for i in range(WINDOW_MS, len(sums), 10)]

    def check(self, *, batch: int = 1) -> None:
        """Within 5 % in every window; a message (or batch) may fall on either side of a window's edge."""
        fair, edge = self.limit * 10, min(batch, self.limit)
        assert min(self.windows()) >= fair * 0.95 - edge
        assert max(self.windows()) <= fair * 1.05 + edge
        assert max(self.windows()) <= fair + self.limit


@pytest.mark.parametrize("processes", [1, 3, 8])
@pytest.mark.parametrize(("limit", "times"), [(1, 20), (10, 10), (100, 3), (5_000, 1.5)])
def test_ten_seconds_get_what_the_limit_says_to_five_percent(
    limit: int, processes: int, times: float
) -> None:
    fleet = Fleet(limit, processes)
    fleet.run(25, fleet.shared(times))
    fleet.check()
    if limit >= 100:
        assert fleet.token_buckets.writes < sum(fleet.accepted) * (0.25 if limit == 100 else 0.02)
        assert fleet.token_buckets.writes <= 25 * processes * 15, "a second"


@pytest.mark.parametrize("processes", [1, 8])
@pytest.mark.parametrize(("limit", "batch"), [(1, 5), (10, 3), (100, 20), (5_000, 1_000)])
def test_batches_are_served_in_part_to_the_same_rate(limit: int, batch: int, processes: int) -> None:
    fleet = Fleet(limit, processes)
    fleet.run(25, fleet.shared(10, batch))
    fleet.check(batch=batch)


def test_demand_that_wanders_from_process_to_process_gets_the_whole_rate() -> None:
    fleet = Fleet(100, 8)
    fleet.run(25, lambda ms: iter([(ms // 1_500 % 8, 1)] * (ms % 3 == 0)))
    fleet.check()


def test_a_limit_that_changes_holds_at_once() -> None:
    fleet = Fleet(5_000, 2)
    fleet.run(3, fleet.shared(2))
    fleet.topic, fleet.limit = make.topic(uid=fleet.topic.uid, rate_limit=10), 10
    fleet.accepted.clear()
    fleet.run(20, fleet.shared(20))
    assert max(fleet.windows()[100:]) <= 105
    assert min(fleet.windows()[100:]) >= 95


class Claims:
    """What processes claim of a group that has more than enough; a claim takes its time, and may lose its race."""

    def __init__(self, rate: float, claim: int, processes: int, seconds: float) -> None:
        fleet, group = Fleet(1, processes), make.group(make.topic(), rate_limit=rate)
        self.rate, self.end_ms, self.fleet = rate, START_MS + int(seconds * 1000), fleet
        self.granted: list[tuple[int, int]] = []
        turns = [(START_MS + fleet.random.randrange(100), n, 0) for n in range(processes)]
        while turns[0][0] < self.end_ms:
            now_ms, n, count = heappop(turns)
            fleet.clock.at_ms, member = now_ms, fleet.members[n]
            if count and fleet.random.random() < 0.3:
                member.put_back(group, count)
            elif count:
                self.granted.append((now_ms, count))
            count = member.permits(group, claim)
            heappush(
                turns,
                (max(member.free_ms(group) * (not count), now_ms + fleet.random.randrange(4, 20)), n, count),
            )

    def beyond(self) -> float:
        """By how much the busiest time, however long, is beyond its share."""
        least = most = total = 0.0
        for at_ms, count in self.granted:
            share = (at_ms - START_MS) / 1000 * self.rate
            least = min(least, total - share)
            total += count
            most = max(most, total - share - least)
        return most

    def least(self, window_ms: int) -> int:
        """What the poorest window had."""
        starts = range(START_MS, self.end_ms - window_ms, window_ms // 10)
        return min(sum(n for at, n in self.granted if start <= at < start + window_ms) for start in starts)


@pytest.mark.parametrize(
    ("rate", "claim", "processes"),
    [(0.35, 1, 8), (1, 10, 1), (3, 1, 8), (20, 4, 60), (200, 5, 1), (1_000, 30, 8), (5_000, 100, 8)],
)
def test_a_groups_claims_get_its_rate_and_no_more_in_any_time(
    rate: float, claim: int, processes: int
) -> None:
    window_s = max(10, 20 / rate)
    claims = Claims(rate, claim, processes, 2 * window_s)
    assert claims.beyond() <= rate * 0.25 + 2
    assert claims.least(int(window_s * 1000)) >= 0.95 * rate * window_s - 1
    assert claims.fleet.token_buckets.writes <= len(claims.granted) * 1.01 + 1, "one for each claim"
