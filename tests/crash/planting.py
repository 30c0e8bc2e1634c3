"""Planted bugs that a crash flow must see."""

from __future__ import annotations

import itertools

from tests.crash.all_flows import FLOWS
from tests.crash.scenes import play
from tests.support.events import Kind
from tests.support.faults import Fault
from tests.support.flows import SharedTables


def is_seen(tables: SharedTables, flow: str, fault: Fault | None, kind: Kind) -> bool:
    """Does the judge accuse the flow of this, without a fault or with it at one of its calls?"""
    for at in itertools.count(1):
        result = play(tables, FLOWS[flow], fault, at)
        if kind in {violation.kind for violation in result.violations}:
            return True
        if fault is None or len(result.plan.calls) < at:
            return False
    raise AssertionError("unreachable")
