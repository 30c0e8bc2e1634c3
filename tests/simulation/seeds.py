"""Which seeds are played: a few in each run, many in the soak, or the one that HEADRACE_SEED names. Of several, one
must see a planted bug."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable

import pytest

from tests.support.planting import Bug

_BLOCK = 30  # played by one test


def blocks(few: int, many: int) -> list[range]:
    """The seeds from 0 on, `few` of them or, in the soak, `many`, in blocks."""
    seeds = each(few, many)
    return [seeds[first : first + _BLOCK] for first in range(0, len(seeds), _BLOCK)]


def each(few: int, many: int) -> range:
    """The same seeds, one by one."""
    if seed := os.environ.get("HEADRACE_SEED"):
        return range(int(seed), int(seed) + 1)
    return range(many if os.environ.get("HEADRACE_SOAK") else few)


def assert_seen(
    bug: Bug,
    complaints: Callable[[int], Collection[object]],
    seeds: Iterable[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the bug planted, at least one seed has complaints."""
    bug.plant(monkeypatch)
    assert any(complaints(seed) for seed in seeds)
