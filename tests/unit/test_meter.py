"""Rates from readings of meters: nothing is counted twice or lost, at any times of reading."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.domain.meter import (
    HOURS,
    MINUTES,
    TENS,
    WINDOWS,
    Bucket,
    GroupReading,
    Reading,
    buckets,
    level_of,
)
from chalicelib.domain.times import MINUTE_MS

NOW_MS = 4_102_444_800_000 + 17_300


def reading(ago_ms: int, accepted: int, settled: int = 0, backlog: int = 0, retried: int = 0) -> Reading:
    return Reading(NOW_MS - ago_ms, accepted, {"mailer": GroupReading(settled, backlog, retried)})


@st.composite
def meters(draw: st.DrawFn) -> list[Reading]:
    """Readings of a meter that only rises, the last one now."""
    ages = draw(st.lists(st.integers(1, 2 * 86_400_000), unique=True, max_size=60))
    steps = draw(st.lists(st.integers(0, 10_000), min_size=len(ages) + 1, max_size=len(ages) + 1))
    readings, total = [], 0
    for ago_ms, step in zip([*sorted(ages, reverse=True), 0], steps, strict=True):
        total += step
        readings.append(reading(ago_ms, total, total // 2))
    return readings


def risen(buckets_found: list[Bucket], first_ms: int) -> float:
    """What the rates of these buckets come to."""
    return sum(
        (each.accepted or 0) * (each.to_ms - max(each.from_ms, first_ms)) / 1_000
        for each in buckets_found
        if each.accepted is not None
    )


@given(meters(), st.sampled_from(sorted(WINDOWS)))
def test_rates_come_to_what_the_meter_rose_by(readings: list[Reading], name: str) -> None:
    buckets_found = buckets(readings, WINDOWS[name], NOW_MS)
    assert all(each.accepted is None or each.accepted >= 0 for each in buckets_found)
    assert all(before.to_ms == after.from_ms for before, after in pairwise(buckets_found))
    assert buckets_found[-1].to_ms == NOW_MS
    if readings[0].at_ms >= buckets_found[0].from_ms:
        rise = readings[-1].accepted - readings[0].accepted
        assert risen(buckets_found, readings[0].at_ms) == pytest.approx(rise, abs=1e-3)


@given(meters())
def test_the_backlog_at_the_end_is_what_was_read_last(readings: list[Reading]) -> None:
    last = Reading(NOW_MS, readings[-1].accepted, {"mailer": GroupReading(0, 7)})
    buckets_found = buckets([*readings[:-1], last], WINDOWS["1h"], NOW_MS)
    assert buckets_found[-1].groups["mailer"].backlog == 7


def test_what_came_after_a_rest_came_in_the_bucket_before_it_was_read() -> None:
    readings = [reading(50 * MINUTE_MS, 100), reading(MINUTE_MS, 160), reading(0, 160)]
    rates = [each.accepted for each in buckets(readings, WINDOWS["1h"], NOW_MS)]
    assert sum(1 for rate in rates if rate) == 2, "a minute that two buckets share"
    assert rates[20] == 0, "at rest"


def test_a_group_that_was_sent_back_shows_no_rate_below_zero() -> None:
    readings = [
        reading(2 * MINUTE_MS, 100, settled=90),
        reading(MINUTE_MS, 100, settled=10),
        reading(0, 100, settled=40),
    ]
    rates = [each.groups["mailer"].settled for each in buckets(readings, WINDOWS["1h"], NOW_MS)]
    assert min(rate for rate in rates if rate is not None) == 0
    assert max(rate for rate in rates if rate is not None) == pytest.approx(0.5)


def test_what_was_never_read_is_not_known() -> None:
    assert buckets([], WINDOWS["24h"], NOW_MS) == []
    (only,) = buckets([reading(0, 5, backlog=3)], WINDOWS["24h"], NOW_MS)
    assert (only.accepted, only.groups["mailer"].backlog) == (None, 3)


def test_a_reading_is_kept_once_with_the_coarsest_level_that_has_none() -> None:
    last_ms: dict[str, int] = {}
    levels = []
    for minute in range(70):
        at_ms = NOW_MS + minute * MINUTE_MS
        if level := level_of(last_ms, at_ms):
            last_ms[level.name] = at_ms
            levels.append(level)
    assert levels[:2] == [HOURS, TENS]
    assert (levels.count(HOURS), levels.count(TENS), levels.count(MINUTES)) == (2, 7, 61)
    assert level_of(last_ms, at_ms + 1_000) is None


def behind(ago_ms: int, *by_shard: int, is_known: bool = True) -> Reading:
    group = GroupReading(0, sum(by_shard), 0, by_shard if is_known else ())
    return Reading(NOW_MS - ago_ms, sum(by_shard), {"mailer": group})


def test_a_backlog_is_drawn_by_shard_and_not_where_it_was_not_kept() -> None:
    readings = [
        behind(4 * MINUTE_MS, 8, 0),
        behind(3 * MINUTE_MS, 5, 5, is_known=False),
        behind(2 * MINUTE_MS, 0, 6),
        behind(MINUTE_MS, 0, 0, is_known=False),
        behind(0, 1, 2, 3),
    ]
    last = {
        each.to_ms: each.groups["mailer"].by_shard
        for each in buckets(readings, WINDOWS["1h"], NOW_MS, shards=3)
    }
    assert last[NOW_MS] == (1, 2, 3)
    assert all(parts[2] == 0 for at_ms, parts in last.items() if at_ms < NOW_MS - MINUTE_MS), "it came later"
    backlogs = [parts[0] for parts in last.values() if parts[0] is not None]
    assert backlogs == [5, 1, 0, 1, 1], "a straight line from 8 to 0 over what was not kept"
    assert buckets(readings, WINDOWS["1h"], NOW_MS)[-1].groups["mailer"].by_shard == ()
    unknown = buckets([behind(0, 5, 5, is_known=False)], WINDOWS["1h"], NOW_MS, shards=2)
    assert unknown[-1].groups["mailer"].by_shard == (None, None)
