"""The three modes: small pure policies over one cursor. `POLICIES` is their registry."""

from __future__ import annotations

from collections.abc import Mapping

from .broadcast import Broadcast
from .policy import Candidate, ClaimVerdict, Policy
from .queue import Queue
from .serial import Serial

POLICIES: Mapping[str, Policy] = {"queue": Queue(), "serial": Serial(), "broadcast": Broadcast()}

__all__ = ["POLICIES", "Candidate", "ClaimVerdict", "Policy"]
