"""The amounts in docs/cost.md are what its formulas say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chalicelib.observe import UNITS
from infra.alarms import alarm_names
from infra.stages import read

PAGE = Path("docs/cost.md").read_text()
_NAMED = re.compile(r"^\| ((?:`\w+`(?:, )?)+) \| ([\d., ]+) \|", re.MULTILINE)
_ROW = re.compile(r"^\| (.+?) \| `([^`]+)` \| ([\d.]+) \|$", re.MULTILINE)
_SENTENCE = re.compile(r"`([^`]+)`\s+=\s+([\d.]+) USD")
_SUM = re.compile(r"([\d.]+(?: \+ [\d.]+)+) = ([\d.]+)")
_ARITHMETIC = re.compile(r"[\w\s.+*/()]+")


def prices() -> dict[str, float]:
    """What has a name: prices, and the amounts of the second table."""
    price_of: dict[str, float] = {}
    for names, amounts in _NAMED.findall(PAGE):
        price_of |= zip(re.findall(r"\w+", names), map(float, amounts.split(", ")), strict=True)
    for name, formula, _ in _ROW.findall(PAGE):
        if re.fullmatch(r"`\w+`", name):
            price_of[name.strip("`")] = worked_out(formula, price_of)
    return price_of


def worked_out(formula: str, names: dict[str, float]) -> float:
    assert _ARITHMETIC.fullmatch(formula), formula
    return float(eval(formula, {"__builtins__": {}}, names))


def claims() -> list[tuple[str, str]]:
    """Each formula with the amount that stands beside it."""
    rows = [(formula, amount) for _, formula, amount in _ROW.findall(PAGE)]
    return [*rows, *_SENTENCE.findall(PAGE), *_SUM.findall(PAGE)]


@pytest.mark.parametrize(("formula", "amount"), claims())
def test_each_amount_is_its_formula(formula: str, amount: str) -> None:
    assert f"{worked_out(formula, prices()):.2f}" == amount


def test_the_page_is_read() -> None:
    assert len(claims()) > 30
    assert prices()["rest"] == 3.5


@pytest.mark.parametrize(
    ("what", "count"),
    [
        ("alarms and a dashboard", len(alarm_names("p", read("prod").functions, archives=False))),
        ("metrics of the deployment", len(UNITS)),
    ],
)
def test_what_is_paid_for_each_is_counted(what: str, count: int) -> None:
    [(told, in_formula)] = re.findall(rf"^\| (\d+) {what}.*? \| `(\d+) \*", PAGE, re.MULTILINE)
    assert (int(told), int(in_formula)) == (count, count)
