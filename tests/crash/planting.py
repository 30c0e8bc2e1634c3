"""Planted bugs that a crash flow must see."""

from __future__ import annotations

from tests.crash.all_flows import FLOWS
from tests.crash.points import Played
from tests.crash.scenes import Result, play
from tests.support.events import Kind
from tests.support.faults import Fault
from tests.support.flows import SharedTables


def is_seen(tables: SharedTables, flow: str, fault: Fault | None, kind: Kind) -> bool:
    """Does the judge accuse the flow of this, without a fault or with it at one of its calls?"""
    calm_run = play(tables, FLOWS[flow])
    if fault is None:
        return _is_accused(calm_run, kind)
    points = Played().points(flow, fault, calm_run.plan.notes)
    return any(_is_accused(play(tables, FLOWS[flow], fault, at), kind) for at in points)


def _is_accused(result: Result, kind: Kind) -> bool:
    return kind in {violation.kind for violation in result.violations}
