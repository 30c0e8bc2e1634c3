"""Planting a bug: a function is replaced by itself with one piece of its text changed. A good test then fails."""

from __future__ import annotations
import __future__

import inspect
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Concatenate, ParamSpec

import pytest

from tests.support.rarely import rarely
from tests.support.stages import Stage, embedded_stage

_P = ParamSpec("_P")
Check = Callable[[], object]
"""A quick test, or a part of one, by its arguments."""


@dataclass(frozen=True)
class Bug:
    """`old` in the source of `function` becomes `new`; `home` is where callers find the function, `also` names the
    modules that have imported it."""

    home: Any
    function: str
    old: str
    new: str
    also: tuple[str, ...] = ()
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
        for home in (self.home, *map(import_module, self.also)):
            monkeypatch.setattr(home, self.function, names[self.function])


Planted = Mapping[str, tuple[Bug, Check]]
"""Bugs by what they do to a user, each with a test that sees it."""


def on_a_stage(test: Callable[Concatenate[Stage, _P], object], *args: _P.args, **kwargs: _P.kwargs) -> Check:
    """The test on an embedded stage of its own, each time it is run."""
    return lambda: test(embedded_stage(), *args, **kwargs)


def names_of(bugs: Iterable[str], soak: Collection[str]) -> list[Any]:
    """The names of bugs as a test's parameters; one in `soak`, which few seeds see or which takes seconds to see, is
    planted in the soak only."""
    return [parameter for name in bugs for parameter in (rarely(name) if name in soak else [name])]


def assert_seen(bug: Bug, check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check passes, and fails once the bug is planted."""
    check()
    bug.plant(monkeypatch)
    with pytest.raises((Exception, pytest.fail.Exception)):
        check()
