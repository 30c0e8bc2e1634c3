"""Parameters of a test that are left to the soak."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest


def rarely(*parameters: object) -> list[Any]:
    """These parameters, marked as those of the soak: what they show, others nearly always show, too."""
    return rarely_sets(*((parameter,) for parameter in parameters))


def rarely_sets(*sets: Collection[object]) -> list[Any]:
    """The same, of several parameters each."""
    return [pytest.param(*values, marks=pytest.mark.soak) for values in sets]
