"""The unit suite: pure rooms and small services, no I/O."""

from __future__ import annotations

from tests.support import examples

__all__ = ["examples"]
