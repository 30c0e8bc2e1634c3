"""Planting a bug: a function is replaced by itself with one piece of its text changed."""

from __future__ import annotations
import __future__

import inspect
import itertools
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.crash.all_flows import FLOWS
from tests.crash.scenes import play
from tests.support.events import Kind
from tests.support.faults import Fault
from tests.support.flows import Stage


@dataclass(frozen=True)
class Bug:
    """`old` in the source of `function` becomes `new`; `home` is where callers find the function."""

    home: Any
    function: str
    old: str
    new: str
    source: str = field(init=False)

    @property
    def original(self) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(self.home, self.function)
        return function

    def __post_init__(self) -> None:
        """Read the source at once: the file may change while the tests run. The text to change must be there, once;
        it is looked for here, so that a bug that only the soak plants fails the quick tests, too, when it no longer
        fits."""
        source = textwrap.dedent(inspect.getsource(self.original))
        assert source.count(self.old) == 1, f"{self.function} has changed: plant the bug anew"
        object.__setattr__(self, "source", source)

    def plant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Replace the function until the test is over."""
        flags = __future__.annotations.compiler_flag
        text = self.source.replace(self.old, self.new)
        code = compile(text, f"<planted in {self.function}>", "exec", flags, dont_inherit=True)
        names: dict[str, Any] = {}
        exec(code, self.original.__globals__, names)
        monkeypatch.setattr(self.home, self.function, names[self.function])


def is_seen(stage: Stage, flow: str, fault: Fault | None, kind: Kind) -> bool:
    """Does the judge accuse the flow of this, without a fault or with it at one of its calls?"""
    for at in itertools.count(1):
        result = play(stage, FLOWS[flow], fault, at)
        if kind in {violation.kind for violation in result.violations}:
            return True
        if fault is None or len(result.plan.calls) < at:
            return False
    raise AssertionError("unreachable")
