"""What the system page reckons a day to cost agrees with the page on costs."""

from __future__ import annotations

import pytest

from chalicelib.console.pages.system import ACCEPTED, RETRIED, SETTLED, Price, Today, today
from chalicelib.domain.meter import GroupReading, Reading
from chalicelib.domain.times import DAY_MS
from tests.unit.test_cost_page import amounts, write_units

_FAILED = "a push that fails once, with the second attempt, alone"
_TOGETHER = "the same in traffic, a hundred together"
_PUSHED = "`push`: one by one as they arrive, to a subscriber that takes 100 ms"
_BACKLOG = "one by one out of a backlog, 64 in flight"
MIDNIGHT_MS = 20_000 * DAY_MS


@pytest.mark.parametrize(
    ("line", "without", "of", "price", "end"),
    [
        ("one by one", "", "one", ACCEPTED, "most"),
        ("in batches of 100", "", "hundredth", ACCEPTED, "least"),
        ("pulled and acked one by one", "", "pulled", SETTLED, "most"),
        ("pushed in batches of 100 out of a backlog", "", "pushed_hundred", SETTLED, "least"),
        (_FAILED, _PUSHED, "failed - pushed", RETRIED, "most"),
        (_TOGETHER, _BACKLOG, "failed_hundred - pushed_hundred", RETRIED, "least"),
    ],
)
def test_units_and_prices_are_those_of_the_page_on_costs(
    line: str, without: str, of: str, price: Price, end: str
) -> None:
    first, *less = (write_units(name) for name in of.split(" - "))
    usd = amounts(line)[0] - (amounts(without)[0] if without else 0)
    numbers = getattr(price, f"{end}_units"), getattr(price, f"{end}_usd")
    assert numbers == pytest.approx((first - sum(less), usd), abs=0.011)


def reading(at_ms: int, accepted: int, settled: int, retried: int = 0) -> Reading:
    return Reading(at_ms, accepted, {"": GroupReading(settled, 0, retried)})


def test_a_day_begins_at_midnight() -> None:
    before = reading(MIDNIGHT_MS - 1, 100, 90, 3)
    now = reading(MIDNIGHT_MS + 5_000, 1_000_100, 200_090, 4)
    assert today([before, now], MIDNIGHT_MS + 6_000) == Today(1_000_000, 200_000, 1)
    assert today([before], MIDNIGHT_MS + 6_000) == Today(0, 0, 0)
    assert today([], MIDNIGHT_MS) == Today(0, 0, 0)
    assert today([now], MIDNIGHT_MS + 6_000) == Today(1_000_100, 200_090, 4), "a stage of today"


def test_it_costs_between_all_in_batches_and_all_one_by_one() -> None:
    day = Today(1_000_000, 1_000_000, 0)
    assert day.units == (110_000, 4_000_000)
    assert day.usd == pytest.approx((0.14, 14.43)), "as the page on costs says, in and out"
