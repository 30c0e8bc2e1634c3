"""The three modes: small pure policies over one cursor. `POLICIES` is their registry."""

from __future__ import annotations

from collections.abc import Mapping

from ..domain.topic import Mode
from .broadcast import Broadcast
from .policy import Candidate, ClaimVerdict, Policy, Turn
from .queue import Keyed, Queue
from .serial import Serial

POLICIES: Mapping[Mode, Policy] = {Mode.QUEUE: Queue(), Mode.SERIAL: Serial(), Mode.BROADCAST: Broadcast()}

__all__ = ["POLICIES", "Candidate", "ClaimVerdict", "Keyed", "Policy", "Serial", "Turn"]
