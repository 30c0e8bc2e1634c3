"""The amounts in docs/cost.md are what its formulas say, of units that are measured here and prices of infra/cost.py.

`HEADRACE_WRITE_EXAMPLES=1` writes units and amounts into the page."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from bench import cost
from bench.meter import Cost
from chalicelib.observe import UNITS
from chalicelib.services.core import budgets
from infra.alarms import alarm_names
from infra.cost import PRICES, memory
from infra.stages import read

PAGE = Path("docs/cost.md")
_PRICES = re.compile(r"^\| ((?:`\w+`(?:, )?)+) \| ([\d., ]+) \|", re.MULTILINE)
_UNITS = re.compile(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \| ([^|]+) \|$")
_RUN = re.compile(r"^\| `(\w+)` \| `(\w+)` \| ([\d.]+) \| (\d+) \| ([^|]+) \| ([\d.]+) \|$")
_ROW = re.compile(r"^\| (.+?) \| `([^`]+)` \|((?: [\d,.]+ \|)+)$")
_SENTENCE = re.compile(r"`([^`]+)` = ([\d,.]+) USD")
_ARITHMETIC = re.compile(r"[\w\s.+*/()-]+")
_A_VCPU_GB = 1.769
_REQUEST_SECONDS = 0.005
_REQUESTS_OF = {"produce": "one", "batch": "hundredth", "receive": "pulled_acking", "deliver": "pushed"}
_VARIABLE = {1: [{"door": PRICES["rest"]}], 2: [{"door": PRICES["rest"]}, {"door": 0.0}]}
_VARIABLE[4] = [{"door": 0.0, "rate": rate} for rate in (1, 10, 100, 1_000)]


@cache
def counts() -> dict[str, float]:
    """What the stack's description says: memory of functions, numbers of alarms and metrics."""
    gigabytes = {f"{name}_gb": gb for name, gb in {"receive": 0.25, **memory("prod")}.items()}
    alarms = {
        f"{stage}_alarms": len(alarm_names("p", read(stage).functions, **read(stage).parts))
        for stage in ("dev", "prod")
    }
    return {**gigabytes, **alarms, "metrics": len(UNITS)}


def written(page: str, measured: Mapping[str, Cost]) -> str:
    """The page with what was measured, and its amounts."""
    names = {**PRICES, **counts()}
    lines = []
    for line in page.splitlines():
        if (row := _UNITS.match(line)) and row[1] in measured:
            found = measured[row[1]]
            writes, reads = kept(float(row[2]), found.writes), kept(float(row[3]), found.reads)
            names[row[1]] = writes * names["write"] + reads * names["read"]
            line = f"| `{row[1]}` | {writes:g} | {reads:g} | {row[4]} |"
        elif row := _RUN.match(line):
            requests = measured[_REQUESTS_OF[row[1]]].trips if row[1] in _REQUESTS_OF else int(row[4])
            seconds = float(row[3]) / 1000 * _A_VCPU_GB + requests * _REQUEST_SECONDS * names[f"{row[2]}_gb"]
            names[row[1]] = names["start"] + seconds * names["second"]
            line = f"| `{row[1]}` | `{row[2]}` | {row[3]} | {requests} | {row[5]} | {names[row[1]]:.2f} |"
        elif row := _ROW.match(line):
            variables = _VARIABLE[row[3].count("|")]
            amounts = [worked_out(row[2], {**names, **each}) for each in variables]
            if name := re.match(r"`(\w+)`: ", row[1]):
                names[name[1]] = amounts[0]
            line = f"| {row[1]} | `{row[2]}` | {' | '.join(f'{amount:,.2f}' for amount in amounts)} |"
        lines.append(_SENTENCE.sub(lambda of: f"`{of[1]}` = {worked_out(of[1], names):,.2f} USD", line))
    return "\n".join(lines) + "\n"


def kept(on_page: float, measured: float) -> float:
    """The page's number, if it is right: how well a hundred rows compress depends on their ids."""
    return on_page if measured == pytest.approx(on_page, rel=0.05) else float(f"{measured:.3g}")


def worked_out(formula: str, names: Mapping[str, float]) -> float:
    assert _ARITHMETIC.fullmatch(formula), formula
    return float(eval(formula, {"__builtins__": {}}, dict(names)))


def amounts(label: str) -> list[float]:
    """The amounts in a row of the page."""
    (found,) = [
        row for line in PAGE.read_text().splitlines() if (row := _ROW.match(line)) and row[1] == label
    ]
    return [float(text.replace(",", "")) for text in re.findall(r"[\d,.]+", found[3])]


def write_units(name: str) -> float:
    """The measured write units in a row of the page."""
    (found,) = [
        row for line in PAGE.read_text().splitlines() if (row := _UNITS.match(line)) and row[1] == name
    ]
    return float(found[2])


def test_each_number_is_measured_counted_or_worked_out(engine: str) -> None:
    page = written(PAGE.read_text(), cost.units(engine))
    if os.environ.get("HEADRACE_WRITE_EXAMPLES"):
        PAGE.write_text(page)
    assert page.splitlines() == PAGE.read_text().splitlines()
    assert len(re.findall(r"^\| .* \| `.+` \| [\d,.]+ \|", page, re.MULTILINE)) > 30, "the page is read"


def test_prices_are_those_that_a_stages_cost_is_computed_with() -> None:
    on_page: dict[str, float] = {}
    for names, usd in _PRICES.findall(PAGE.read_text().partition("## A million")[0]):
        if len(found := re.findall(r"\w+", names)) == len(amounts_ := usd.split(", ")):
            on_page |= dict(zip(found, map(float, amounts_), strict=True))
    assert {name: on_page.get(name) for name in PRICES} == PRICES
    a_call = PRICES["rest"] + PRICES["start"]
    in_budgets = (budgets._CALL, budgets._WRITE, budgets._READ)
    assert in_budgets == pytest.approx([1000 * usd for usd in (a_call, PRICES["write"], PRICES["read"])])
