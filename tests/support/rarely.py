"""Parameters of a test that are left to the soak."""

from __future__ import annotations

from typing import Any

import pytest


def rarely(*parameters: object) -> list[Any]:
    """These parameters, marked as those of the soak: what they show, others nearly always show, too."""
    return [pytest.param(parameter, marks=pytest.mark.soak) for parameter in parameters]
