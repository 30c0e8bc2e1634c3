"""Which seeds are played: a few in each run, many in the soak, or the one that is asked for (HEADRACE_SEED=17)."""

from __future__ import annotations

import os

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
