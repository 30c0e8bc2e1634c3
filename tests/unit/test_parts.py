"""How pull consumers share a shard: equal parts, at any batch size; and nothing waits for an absent consumer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chalicelib.domain import pull_share
from chalicelib.domain.pull_share import PATIENCE_MS, Round, Seat
from chalicelib.store.cursors import _parse_round, _round_text

NOW_MS = 1_795_248_525_000


class Shard:
    """Messages that are there, and who has taken how many."""

    def __init__(self, available: int, total: int) -> None:
        self.available, self.total = available, total
        self.held: Round | None = None
        self.taken: Counter[int] = Counter()

    def receive(self, rank: int, most: int, now_ms: int = NOW_MS) -> int:
        seat = Seat(1, rank, self.total, most)
        available = min(self.available, most * self.total)
        count = min(most, pull_share.room(self.held, seat, available, now_ms))
        if count:
            self.held = pull_share.after(self.held, seat, count, available - count, now_ms)
        self.available -= count
        self.taken[rank] += count
        return count


@given(
    total=st.integers(2, 16),
    each=st.integers(1, 40),
    most=st.integers(1, 1000),
    order=st.permutations(range(16)),
)
def test_equal_ones_that_poll_in_turn_get_equal_parts(
    total: int, each: int, most: int, order: Sequence[int]
) -> None:
    shard = Shard(each * total, total)
    ranks = [rank for rank in order if rank < total]
    for _ in range(each + 1):
        for rank in ranks:
            shard.receive(rank, most)
    assert shard.available == 0
    assert max(shard.taken.values()) - min(shard.taken.values()) <= 1


@given(
    total=st.integers(2, 8),
    polls=st.lists(st.tuples(st.integers(0, 7), st.integers(1, 50)), max_size=40),
    number=st.integers(1, 50),
)
def test_whoever_asks_gets_all_once_nobody_else_has_come_for_a_while(
    total: int, polls: list[tuple[int, int]], number: int
) -> None:
    shard = Shard(200, total)
    for rank, most in polls:
        shard.receive(rank % total, most)
    later_ms = NOW_MS + PATIENCE_MS + 1
    for _ in range(
        3
    ):  # a new round begins; those who don't come in its first second are waited for no longer
        shard.receive(0, number, later_ms)
        later_ms += PATIENCE_MS // 2 + 1
    rest = shard.available
    assert shard.receive(0, number, later_ms) == min(number, rest)


@given(total=st.integers(2, 16), most=st.integers(1, 1000), available=st.integers(1, 1000))
def test_there_is_always_somebody_who_may_take_something(total: int, most: int, available: int) -> None:
    shard = Shard(available, total)
    while shard.available:
        before = shard.available
        for rank in range(total):
            shard.receive(rank, most)
        assert shard.available < before


def test_who_was_away_has_not_saved_anything_up() -> None:
    shard = Shard(10_000, 2)
    at_ms = NOW_MS
    for _ in range(40):
        shard.receive(0, 40, at_ms)
        at_ms += 100
    shard.available = 60
    assert shard.receive(1, 1000, at_ms) == 30
    assert shard.receive(0, 1000, at_ms) == 30


def test_a_slow_one_keeps_no_more_than_it_asks_for() -> None:
    shard = Shard(1000, 2)
    assert shard.receive(1, 10) == 10
    counts = [shard.receive(0, 100, NOW_MS + n) for n in range(1, 12)]
    assert sum(counts) == 980


def test_other_ranks_begin_a_new_round() -> None:
    round_held = pull_share.after(None, Seat(1, 0, 2, 10), 10, 0, NOW_MS)
    assert pull_share.room(round_held, Seat(1, 0, 2, 10), 10, NOW_MS) == 0
    assert pull_share.room(round_held, Seat(2, 0, 2, 10), 10, NOW_MS) == 5


@pytest.mark.parametrize("claims", [1, 40])
def test_a_round_is_kept_small_and_reads_as_it_was_written(claims: int) -> None:
    round_held: Round | None = None
    for n in range(claims):
        round_held = pull_share.after(round_held, Seat(7, n, 64, 1000), 9_000, n, NOW_MS + n)
    assert round_held
    assert len(_round_text(round_held)) < 300
    assert _parse_round(_round_text(round_held)) == round_held
