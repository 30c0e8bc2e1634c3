"""What delays cost and how late they come on AWS, in a model: docs/cost.md has the table."""

from __future__ import annotations

import queue
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.mover_model import Model, play
from chalicelib.scheduler import mover
from tests.simulation import virtual

PAGE = Path("docs/cost.md").read_text()
_ROW = re.compile(r"^\| ([\d.,]+) \| (\d+) \| (\d) \| ([\d.]+) s \| ([\d.]+) \|$", re.MULTILINE)
_OFTEN = (0.01, 1.0, 10.0)  # 100 and 1,000 a second take seconds each: in the soak


@pytest.fixture(autouse=True)
def _virtual_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = SimpleNamespace(SimpleQueue=lambda: virtual.Queue(virtual.current()), Empty=queue.Empty)
    monkeypatch.setattr(mover, "queue", waits)


@cache
def table() -> Mapping[tuple[float, int], tuple[int, float, float]]:
    """Movers at once, lateness and price, by rate and number of processes."""
    rows = _ROW.findall(PAGE)
    return {
        (float(rate.replace(",", "")), int(processes)): (int(movers), float(late), float(usd))
        for rate, processes, movers, late, usd in rows
    }


def model_of(rate: float, processes: int) -> Model:
    return play(rate, processes, fragments=32 if rate >= 1_000 else 8)


@pytest.mark.parametrize(("rate", "processes"), table())
def test_the_table_says_what_the_model_shows(rate: float, processes: int) -> None:
    if rate not in _OFTEN and rate * processes != 100:
        pytest.skip("it takes seconds: `python -m bench.mover_model` prints all rows")
    model = model_of(rate, processes)
    row = (model.most_movers, round(model.p99_ms / 1000, 1), round(model.usd_a_million, 2))
    assert table()[rate, processes] == row
    assert model.most_movers <= 4
    assert model.p99_ms <= 1_500


def test_a_lost_wake_up_makes_a_message_late_by_75_seconds_at_most() -> None:
    model = play(0.1, 10, loss=0.5, seconds=1_000)
    assert 10_000 < max(model.late_ms) <= 75_000


def test_the_table_has_the_rates_that_it_should() -> None:
    rates = {rate for rate, _ in table()}
    assert rates == {0.01, 1, 10, 100, 1_000}
    assert len(table()) == 5
