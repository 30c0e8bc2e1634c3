"""The page that says what proves what names each planted bug, under the net that sees it."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import pytest

from tests.crash import test_planted_bugs as storing
from tests.crash import test_planted_delivery_bugs as delivering
from tests.crash import test_planted_transaction_bugs as agreeing
from tests.functional.api import test_api_old_tokens as old_tokens
from tests.releases import test_rows as releases
from tests.simulation import test_days as days
from tests.simulation import test_planted_bugs as worlds
from tests.simulation import test_planted_in_weeks as weeks
from tests.simulation import test_sharing as shares
from tests.simulation import test_tenants as tenants
from tests.simulation import test_unswept as unswept
from tests.support import conditions
from tests.unit import test_planted_bad_data as bad_data
from tests.unit import test_planted_faults as faults
from tests.unit import test_planted_mover_bugs as movers
from tests.unit import test_planted_request_bugs as requests

PAGE = Path("docs/net.md").read_text()
NETS: dict[str, Collection[str]] = {
    "Crash enumeration: storing and claiming": storing.BUGS,
    "Crash enumeration: deliveries, timers, dead letters": delivering.BUGS,
    "Crash enumeration: transactions": agreeing.BUGS,
    "Simulated worlds": worlds.BUGS,
    "Shares in a queue": shares.BUGS,
    "Two tenants": tenants.BUGS,
    "Without the sweep": unswept.BUGS,
    "Stages over weeks": weeks.BUGS,
    "Two releases": releases.BUGS,
    "Quick tests": faults.BUGS,
    "Requests, tokens and edges": requests.BUGS,
    "Movers, wake-ups and lines": movers.BUGS,
    "Bad data": bad_data.BUGS,
    "Stages with bad data": days.BUGS,
    "Tokens of the first release": old_tokens.BUGS,
    "Conditions of the store": conditions.CLAUSES,
}


@pytest.mark.parametrize("net", NETS)
def test_each_planted_bug_stands_under_its_net(net: str) -> None:
    part = PAGE.partition(f"### {net}\n")[2].partition("\n#")[0]
    listed = [line.removeprefix("- ").strip("`") for line in part.splitlines() if line.startswith("- ")]
    assert sorted(listed) == sorted(NETS[net])


def test_there_are_as_many_as_the_page_says() -> None:
    (least,) = re.findall(r"More than (\d+) bugs are planted", PAGE)
    assert sum(map(len, NETS.values())) > int(least)
