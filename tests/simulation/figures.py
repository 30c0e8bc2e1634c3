"""What a run of the simulation amounts to: worlds, steps and faults, over all processes that share the tests."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.simulation.days.stage import Days
from tests.simulation.hurried import Hurry
from tests.simulation.world import World

_figures: Counter[str] = Counter()
_KEY = "simulation"


def count(world: World) -> None:
    """One world was played to its end."""
    _figures.update(worlds=1, steps=len(world.path))
    _figures.update({f"fault: {kind}": number for kind, number in world.injected.items() if number})


def count_days(days: Days) -> None:
    """Some weeks were played to their end."""
    _figures.update({"weeks": 1, "things in weeks": len(days.path)})
    _figures.update({f"fault: {kind}": number for kind, number in days.injected.items() if number})


def count_hurry(hurry: Hurry) -> None:
    """A stage whose jobs had too little time was played to its end."""
    _figures.update({"hurried": 1, "things in hurried": len(hurry.path)})
    _figures.update({f"fault: {kind}": number for kind, number in hurry.injected.items() if number})


class Figures:
    """A plugin of pytest: each process that ran tests hands in its figures, and they are printed at the end."""

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_KEY] = dict(_figures)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        _figures.update(getattr(node, "workeroutput", {}).get(_KEY, {}))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not _figures:
            return
        kinds = {name.removeprefix("fault: "): n for name, n in _figures.items() if name.startswith("fault")}
        summary = ", ".join(f"{n:,} {kind}" for kind, n in sorted(kinds.items()))
        terminalreporter.write_line(
            f"simulation: {_figures['worlds']:,} worlds, {_figures['steps']:,} steps, "
            f"{_figures['weeks']:,} stages over weeks, {_figures['things in weeks']:,} steps, "
            f"{_figures['hurried']:,} stages short of time, {_figures['things in hurried']:,} steps, "
            f"{sum(kinds.values()):,} faults ({summary})"
        )
