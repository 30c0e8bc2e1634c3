"""Those who pull from one shard get equal parts of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chalicelib.domain import pull_share
from chalicelib.domain.pull_share import PATIENCE_MS, Part, Round, Seat, after, room
from chalicelib.store.cursors import _parse_round, _round_text

NOW = 1_800_000_000_000
LONG_AGO = NOW - PATIENCE_MS - 1


def round_of(*parts: tuple[int, int], rest: int = 1, began_ms: int = LONG_AGO, last_ms: int = NOW) -> Round:
    """Who took how much, and asked for how much, by rank."""
    return Round(
        7, began_ms, rest, {rank: Part(count, last_ms, most) for rank, (count, most) in enumerate(parts)}
    )


def seat(rank: int = 0, total: int = 3, most: int = 10) -> Seat:
    return Seat(7, rank, total, most)


@pytest.mark.parametrize(
    ("parts", "total", "available", "mine"),
    [
        pytest.param([(0, 10), (0, 10)], 2, 5, 3, id="the odd one to who comes first"),
        pytest.param([(0, 10), (6, 10)], 2, 4, 4, id="all, behind one that has its part"),
        pytest.param([(5, 10), (3, 10), (0, 1)], 3, 4, 2, id="what the others lack, or ask for, is left"),
        pytest.param([(5, 10), (9, 10), (0, 1)], 3, 4, 3, id="who has more than its part is left nothing"),
        pytest.param([(10, 10), (0, 5), (0, 5)], 3, 1, 0, id="nothing, far ahead of the others"),
        pytest.param([(0, 10), (100, 10)], 2, 1, 1, id="no more than there is"),
    ],
)
def test_the_room_is_a_part_and_what_the_others_leave(
    parts: list[tuple[int, int]], total: int, available: int, mine: int
) -> None:
    assert room(round_of(*parts), seat(total=total), available, NOW) == mine


@pytest.mark.parametrize(
    ("count", "others", "mine"),
    [
        pytest.param(2, (10, 8), 8, id="saved nothing up"),
        pytest.param(9, (10, 8), 9, id="got nothing back"),
        pytest.param(9_000, (10, 8), 10, id="need not wait until the others have as much"),
        pytest.param(2, (), 2, id="is alone"),
        pytest.param(None, (10, 8), 8, id="is new"),
        pytest.param(None, (), 0, id="is new and alone"),
    ],
)
def test_who_was_away_goes_on_among_the_others(count: int | None, others: tuple[int, ...], mine: int) -> None:
    parts = {rank: Part(each, NOW, 10) for rank, each in enumerate(others, 1)}
    if count is not None:
        parts[0] = Part(count, LONG_AGO, 10)
    assert after(Round(7, LONG_AGO, 1, parts), seat(), 5, 0, NOW).parts[0].taken == mine + 5


@pytest.mark.parametrize(
    ("rest", "last_ms", "goes_on"),
    [
        pytest.param(0, NOW - PATIENCE_MS, True, id="claimed from a second ago"),
        pytest.param(0, LONG_AGO, False, id="nothing left, and nobody came"),
        pytest.param(1, LONG_AGO, True, id="something left"),
    ],
)
def test_a_round_ends_when_nothing_is_left_and_nobody_comes(rest: int, last_ms: int, goes_on: bool) -> None:
    began_ms = NOW - 10 * PATIENCE_MS
    old_round = round_of((4, 10), (4, 10), rest=rest, began_ms=began_ms, last_ms=last_ms)
    assert after(old_round, seat(), 1, 0, NOW).began_ms == (began_ms if goes_on else NOW)


def test_who_came_last_is_remembered_when_many_take_part() -> None:
    lasts = {rank: NOW - abs(rank - 12) for rank in range(20)}  # the one of rank 12 came last
    old_round = Round(7, LONG_AGO, 1, {rank: Part(1, last_ms, 10) for rank, last_ms in lasts.items()})
    parts = after(old_round, seat(rank=0, total=20), 1, 0, NOW).parts
    assert list(parts) == [0, *range(5, 20)]


def test_who_took_much_while_it_was_alone_gets_an_equal_part_when_it_returns() -> None:
    """The other one emptied the shard meanwhile, so the round goes on. Now messages come one by one."""
    round, now_ms = round_of((9_000, 10), rest=500, last_ms=LONG_AGO), NOW
    round = after(round, seat(rank=1, total=2), 500, 0, now_ms)
    counts = [0, 0]
    for n in range(100):
        now_ms += 200
        for rank in (0, 1):
            one = seat(rank=rank, total=2)
            if sum(counts) == n and (count := room(round, one, 1, now_ms)):
                round = after(round, one, count, 0, now_ms)
                counts[rank] += count
    assert counts == [50, 50]


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


@pytest.mark.parametrize("claims", [1, 40])
def test_a_round_is_kept_small_and_reads_as_it_was_written(claims: int) -> None:
    round_held: Round | None = None
    for n in range(claims):
        round_held = pull_share.after(round_held, Seat(7, n, 64, 1000), 9_000, n, NOW_MS + n)
    assert round_held
    assert len(_round_text(round_held)) < 300
    assert _parse_round(_round_text(round_held)) == round_held
