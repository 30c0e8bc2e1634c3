"""What each of those who pull from a queue may take of a shard, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chalicelib.domain.pull_share import PATIENCE_MS, Part, Round, Seat, after, room

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


def test_who_comes_first_leaves_the_others_their_parts_for_a_second() -> None:
    assert room(None, seat(total=3), 9, NOW) == 3
    new_round = Round(7, NOW - PATIENCE_MS, 6, {1: Part(3, NOW, 10)})
    assert room(new_round, seat(total=3), 6, NOW) == 3
    older = replace(new_round, began_ms=LONG_AGO, parts={1: Part(3, LONG_AGO, 10)})
    assert room(older, seat(total=3), 6, NOW) == 6
    assert room(round_of((0, 10), (0, 10), last_ms=LONG_AGO), seat(total=2), 4, NOW) == 4


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


def test_in_a_round_that_has_just_begun_everybody_begins() -> None:
    new_round = Round(7, NOW, 1, {1: Part(10, NOW, 10)})
    assert after(new_round, seat(), 5, 0, NOW).parts[0].taken == 5


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


def test_another_assignment_begins_another_round() -> None:
    old_round = round_of((4, 10), (4, 10))
    assert after(old_round, Seat(8, 0, 2, 10), 1, 3, NOW) == Round(8, NOW, 3, {0: Part(1, NOW, 10)})


def test_who_came_last_is_remembered_when_many_take_part() -> None:
    lasts = {rank: NOW - abs(rank - 12) for rank in range(20)}  # the one of rank 12 came last
    old_round = Round(7, LONG_AGO, 1, {rank: Part(1, last_ms, 10) for rank, last_ms in lasts.items()})
    parts = after(old_round, seat(rank=0, total=20), 1, 0, NOW).parts
    assert list(parts) == [0, *range(5, 20)]


def test_numbers_stay_small_and_in_proportion() -> None:
    old_round = round_of((9_999, 10), (7, 10))
    assert after(old_round, seat(), 1, 0, NOW).parts == {0: Part(10_000, NOW, 10), 1: Part(7, NOW, 10)}
    assert after(old_round, seat(), 2, 0, NOW).parts == {0: Part(5_000, NOW, 10), 1: Part(3, NOW, 10)}


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
