"""How many deliveries one write settles."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.cursor import Disposition, Result
from chalicelib.services.consume.settle_steps import Step, that_fit
from tests.support import factories as make


def steps(
    count: int, disposition: Disposition = Disposition.SUCCESS, due: int = 0, **settings: Any
) -> list[Step]:
    """Neighbours; each is due `due` after the one before."""
    return [
        Step(Result(offset, disposition, 1 + due * offset), None, 0, **settings) for offset in range(count)
    ]


def letters(count: int, size: int = 1) -> list[Step]:
    dead_record = make.dead_record(0, make.draft("x" * size))
    return steps(count, Disposition.DEAD, record=dead_record)


@pytest.mark.parametrize(
    ("all_steps", "fit"),
    [
        pytest.param(steps(1000), 1000, id="successes take nothing"),
        pytest.param(steps(1000, Disposition.RETRY), 1000, id="neighbours of one time are one entry"),
        pytest.param(steps(200, Disposition.RETRY, due=1), 90, id="of other times they are not"),
        pytest.param(steps(200, Disposition.RELEASED)[::2], 90, id="nor those apart"),
        pytest.param(steps(200, record=make.record(0, "SUCCESS")), 90, id="records"),
        pytest.param(
            steps(200, Disposition.RETRY_LATER, record=make.record(0, "RETRYING"), timer=make.timer()),
            45,
            id="records with timers",
        ),
        pytest.param(letters(200), 45, id="dead letters"),
        pytest.param(letters(20, 600_000), 3, id="large dead letters"),
        pytest.param(letters(2, 3_000_000), 1, id="one that is too large for others"),
    ],
)
def test_a_write_takes_the_first_that_it_can_hold(all_steps: list[Step], fit: int) -> None:
    assert that_fit(all_steps) == all_steps[:fit]


def test_returned_neighbours_of_different_kinds_take_an_entry_each() -> None:
    mixed_steps = [
        each
        for pair in zip(steps(200, Disposition.RETRY), steps(200, Disposition.RELEASED), strict=True)
        for each in pair
    ]
    in_turn = [step for at, step in enumerate(mixed_steps) if at % 2 == step.result.offset % 2]
    assert len(that_fit(in_turn)) == 90


def test_what_follows_one_that_does_not_fit_waits_for_the_next_write() -> None:
    large, small = letters(1, 1_500_000), letters(1)
    assert that_fit([*large, *large, *small]) == large
