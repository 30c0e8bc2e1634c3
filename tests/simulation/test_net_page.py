"""The page that says what proves what names each planted bug, under the net that sees it."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash import delivery_bugs as delivering
from tests.crash import test_planted_bugs as storing
from tests.crash import test_planted_transaction_bugs as agreeing
from tests.simulation import test_days as days
from tests.simulation import test_hurried as hurried
from tests.simulation import test_memory as memory
from tests.simulation import test_overtaking as overtaking
from tests.simulation import test_planted_bugs as worlds
from tests.simulation import test_planted_in_weeks as weeks
from tests.simulation import test_sharing as shares
from tests.simulation import test_slow_answers as slow_answers
from tests.simulation import test_tenants as tenants
from tests.simulation import test_unswept as unswept
from tests.support import conditions
from tests.support.planting import Bug
from tests.unit import test_planted_faults as faults
from tests.unit import test_planted_mover_bugs as movers
from tests.unit import test_planted_push_bugs as pushes
from tests.unit import test_planted_request_bugs as requests

PAGE = Path("docs/net.md").read_text()
NETS: dict[str, Collection[str]] = {
    "Crash enumeration: storing and claiming": storing.BUGS,
    "Crash enumeration: deliveries, timers, dead letters": delivering.BUGS,
    "Crash enumeration: transactions": agreeing.BUGS,
    "Simulated worlds": worlds.BUGS | worlds.SOUGHT,
    "Shares in a queue": shares.BUGS,
    "Two tenants": tenants.BUGS,
    "Without the sweep": unswept.BUGS,
    "Two threads of a process": overtaking.BUGS,
    "Slow answers": slow_answers.BUGS,
    "Stages over weeks": weeks.BUGS,
    "Stages short of time": hurried.BUGS,
    "Memory of a run": memory.BUGS,
    "Quick tests": faults.BUGS,
    "Push runs": pushes.BUGS,
    "Requests, tokens and edges": requests.BUGS,
    "Movers, wake-ups and lines": movers.BUGS,
    "Stages with values at limits": days.BUGS,
    "Conditions of the store": conditions.CLAUSES,
}


@pytest.mark.parametrize("net", NETS)
def test_each_planted_bug_stands_under_its_net(net: str) -> None:
    part = PAGE.partition(f"### {net}\n")[2].partition("\n#")[0]
    names = [line.removeprefix("- ").strip("`") for line in part.splitlines() if line.startswith("- ")]
    assert sorted(names) == sorted(NETS[net])


def test_there_are_as_many_as_the_page_says() -> None:
    (least,) = re.findall(r"More than (\d+) bugs are planted", PAGE)
    assert sum(map(len, NETS.values())) > int(least)


def _bugs(entry: Any) -> Iterator[Bug]:
    if isinstance(entry, Bug):
        yield entry
    elif isinstance(entry, tuple):
        for part in entry:
            yield from _bugs(part)


def _planted() -> list[Bug]:
    tables = [table for table in NETS.values() if isinstance(table, dict)]
    return [bug for table in tables for entry in table.values() for bug in _bugs(entry)]


def test_each_bug_can_be_planted_also_one_that_only_the_soak_plants() -> None:
    assert len(_planted()) > 200, "the tables hold bugs"
    for bug in _planted():
        with pytest.MonkeyPatch.context() as patch:
            original = bug.original
            bug.plant(patch)
            assert bug.original != original
        assert bug.original == original


def test_what_is_left_to_the_soak_is_planted_there() -> None:
    assert worlds.BUGS.keys() >= worlds.SLOW
    assert weeks.BUGS.keys() >= weeks.RARE


def _a_function() -> str:
    return "one" + "two" + "two"


@pytest.mark.parametrize("text", ["three", "two"])
def test_a_bug_whose_text_is_not_there_once_is_refused_before_any_test_runs(text: str) -> None:
    with pytest.raises(AssertionError, match="plant the bug anew"):
        Bug(sys.modules[__name__], "_a_function", f'"{text}"', '"four"')


def test_a_bug_whose_function_is_gone_is_refused_before_any_test_runs() -> None:
    with pytest.raises(AttributeError):
        Bug(sys.modules[__name__], "_another_function", "one", "two")
