"""The small pure rooms: ranges, ladders, ids, sharding."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chalicelib.domain import ids, ladder, ranges
from chalicelib.domain.ladder import NAMED, Retry
from chalicelib.domain.limits import MAX_LADDER_STEPS, MAX_RETRY_SECONDS
from chalicelib.domain.sharding import shard_of, unit_of

some_ranges = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=8)


def members(spans: list[tuple[int, int]] | ranges.Ranges) -> set[int]:
    return {offset for start, end in spans for offset in range(start, end)}


@given(some_ranges)
def test_normal_ranges_hold_the_same_offsets_sorted_and_apart(given_ranges: list[tuple[int, int]]) -> None:
    normal = ranges.normalise(given_ranges)
    assert members(normal) == members(given_ranges)
    assert all(start < end for start, end in normal)
    assert all(a[1] < b[0] for a, b in itertools.pairwise(normal))
    assert ranges.total(normal) == len(members(normal))
    assert ranges.normalise(normal) == normal


@given(some_ranges, some_ranges)
def test_subtracting_leaves_what_only_the_first_holds(
    a: list[tuple[int, int]], b: list[tuple[int, int]]
) -> None:
    rest = ranges.subtract(ranges.normalise(a), ranges.normalise(b))
    assert members(rest) == members(a) - members(b)
    assert ranges.total(rest) == len(members(rest))


@given(some_ranges, st.integers(0, 40), st.integers(1, 5))
def test_ranges_touch_where_they_have_an_offset_in_common(
    a: list[tuple[int, int]], start: int, count: int
) -> None:
    spans = ranges.normalise(a)
    assert ranges.touch(spans, start, start + count) is bool(
        members(spans) & members([(start, start + count)])
    )


def test_every_named_ladder_is_as_documented() -> None:
    assert dict(NAMED) == {
        "fixed-30": (30, 30, 30),
        "jmq": (1, 3, 9, 27, 81, 243, 729, 2187, 6561, 19683),
        "notify": (15, 180, 600, 1800, 1800, 3600, 7200, 21600, 54000),
        "rocketmq": (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200),
    }
    assert sum(NAMED["notify"]) == 90_795


def test_an_exponential_ladder_doubles_up_to_its_cap() -> None:
    assert ladder.steps(Retry(9, "exponential", base_seconds=1, factor=2, cap_seconds=20)) == (
        1,
        2,
        4,
        8,
        16,
        20,
    )
    assert ladder.exponential(30, 1.0, 600) == (30,)
    assert ladder.exponential(100, 2.0, 50) == (50,)
    assert ladder.exponential(1, 2.0, 8) == (1, 2, 4, 8)


@given(st.integers(1, 10**6), st.floats(1, 10, allow_nan=False), st.integers(1, MAX_RETRY_SECONDS))
def test_an_exponential_ladder_rises_within_its_bounds(base: int, factor: float, cap: int) -> None:
    steps = ladder.exponential(base, factor, cap)
    assert 1 <= len(steps) <= MAX_LADDER_STEPS
    assert list(steps) == sorted(steps)
    assert all(1 <= step <= max(cap, 1) for step in steps)


@given(st.integers(0, 2**64))
def test_a_number_comes_back_from_base_32(number: int) -> None:
    text = ids.base32(number)
    assert ids.from_base32(text) == number
    with pytest.raises(ValueError, match="canonical"):
        ids.from_base32("0" + text)


request_ids = st.text(ids.ALPHABET, min_size=12, max_size=12)


@given(request_ids, st.integers(0, 255), st.integers(0, 2**60))
def test_a_message_id_tells_its_place(request_id: str, shard: int, offset: int) -> None:
    text = ids.message_id(request_id, shard, offset)
    assert ids.parse_message_id(text) == (request_id, shard, offset)
    assert ids.parse_message_id(text.upper()) in (
        None,
        (request_id, shard, offset) if text == text.upper() else None,
    )


@pytest.mark.parametrize(
    "junk",
    [
        "", "-", "--", "0123456789ab-0", "0123456789ab-0-", "0123456789a-0-0", "0123456789abc-0-0", "0123456789ab-00-0",
        "0123456789ab-0-01", "0123456789ab-i-0", "0123456789ab-0-u", "0123456789ab-0-0\n", " 0123456789ab-0-0",
        "0123456789ab-0-0-0", "0123456789AB-0-0", "0123456789ab-00000-0", "0123456789ab-0-" + "1" * 14,
        "0123456789ab-٣-0", "0123456789ab--1-0",
    ],
)  # fmt: skip
def test_junk_is_no_message_id(junk: str) -> None:
    assert ids.parse_message_id(junk) is None


def test_a_key_keeps_its_shard_in_every_process_and_release() -> None:
    keys = ("", "a", "order-1", "ключ", "x" * 256)
    assert [shard_of(key, 4) for key in keys] == [0, 3, 1, 0, 3]
    assert [shard_of(key, 256) for key in keys] == [180, 47, 61, 32, 151]
    assert [unit_of(key, None) for key in keys] == ["zsfq", "yT9S", "tzNj", "LECn", "IBKe"]
    assert unit_of(None, None) == "-"
    tenants = [unit_of(key, tenant) for key in (None, "a") for tenant in ("x", "y")]
    assert len({*tenants, unit_of("a", None), "-"}) == 6, "order is per tenant and key"


def test_keys_spread_evenly_over_shards() -> None:
    counts = [0] * 16
    for n in range(16_000):
        counts[shard_of(f"customer-{n}", 16)] += 1
    assert min(counts) > 850
    assert max(counts) < 1_150
