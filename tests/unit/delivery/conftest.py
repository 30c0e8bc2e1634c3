"""Delivery's pure parts."""

from __future__ import annotations

from tests.support import examples

__all__ = ["examples"]
