"""Tickets that may be used once."""

from __future__ import annotations

from typing import Protocol


class Tickets(Protocol):
    """Which tickets were used."""

    def use(self, ticket_id: str, now_ms: int, until_s: int) -> bool:
        """Use a ticket, which is worth nothing after `until_s`. False: it was used before. Whoever lost the answer does
        not know whether it was, and needs another ticket."""
        ...
