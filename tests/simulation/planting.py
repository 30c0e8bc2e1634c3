"""Planted bugs that one of several seeds must see."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest

from tests.support.planting import Bug
from tests.support.rarely import rarely


def names_of(bugs: Iterable[str], soak: Collection[str]) -> list[Any]:
    """The names of bugs as a test's parameters; a bug in `soak`, which few seeds see, is planted in the soak only."""
    return [parameter for name in bugs for parameter in (rarely(name) if name in soak else [name])]


def assert_seen(
    bug: Bug,
    complaints: Callable[[int], Collection[object]],
    seeds: Iterable[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the bug planted, at least one seed has complaints."""
    bug.plant(monkeypatch)
    assert any(complaints(seed) for seed in seeds)
