"""What the system page reckons a day to cost agrees with the page on costs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chalicelib.console.pages.system import ACCEPTED, RETRIED, SETTLED, Price, Today, today
from chalicelib.domain.meter import GroupReading, Reading
from chalicelib.domain.times import DAY_MS

COST = (Path(__file__).parents[2] / "docs" / "cost.md").read_text()
MIDNIGHT_MS = 20_000 * DAY_MS


@pytest.mark.parametrize(
    ("line", "price", "end"),
    [
        ("one by one", ACCEPTED, "most"),
        ("in batches of 100", ACCEPTED, "least"),
        ("pulled and acked one by one", SETTLED, "most"),
        ("pushed in batches of 100 out of a backlog", SETTLED, "least"),
        ("a push that fails once, on top", RETRIED, "most"),
    ],
)
def test_units_and_prices_are_those_of_the_page_on_costs(line: str, price: Price, end: str) -> None:
    row = re.search(rf"^\| {re.escape(line)} \| `([^`]*)` \| ([\d.]+) \|$", COST, re.MULTILINE)
    assert row
    units = re.search(r"(?:([\d.]+) \* )?write", row[1])
    assert units
    numbers = getattr(price, f"{end}_units"), getattr(price, f"{end}_usd")
    assert numbers == (float(units[1] or 1), float(row[2]))


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
    assert day.usd == pytest.approx((0.14, 15.03)), "as the page on costs says, in and out"
