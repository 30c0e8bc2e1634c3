"""Planting a bug: a function is replaced by itself with one piece of its text changed."""

from __future__ import annotations
import __future__

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True, slots=True)
class Bug:
    """`old` in the source of `function` becomes `new`; `home` is where callers find the function."""

    home: Any
    function: str
    old: str
    new: str

    def plant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Replace the function until the test is over. The text to change must still be there, once."""
        original: Callable[..., Any] = getattr(self.home, self.function)
        source = textwrap.dedent(inspect.getsource(original))
        assert source.count(self.old) == 1, f"{self.function} has changed: plant the bug anew"
        flags = __future__.annotations.compiler_flag
        code = compile(source.replace(self.old, self.new), f"<planted in {self.function}>", "exec", flags)
        names: dict[str, Any] = {}
        exec(code, original.__globals__, names)
        monkeypatch.setattr(self.home, self.function, names[self.function])
