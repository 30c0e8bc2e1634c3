"""Writes the decisions of one run, and keeps those that the store could not take yet.

Called by `run.py`, and by `claims.py` for messages that it returns; `settle.py` in the package `consume` does the
writing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...domain.cursor import Disposition
from ...domain.errors import Conflict, Unavailable
from ...domain.receipt import Receipt
from ...domain.topic import Group, Topic
from ..consume.decision import SettleDecision
from ..consume.settle import Settler

_TRIES = 20  # in succession without a successful settlement; then the run stops, and the leases end


class Settlements:
    """The settlements of one run."""

    def __init__(self, settler: Settler) -> None:
        self._settler = settler
        self._owed: dict[Receipt, SettleDecision] = {}
        self._tries = 0  # since the store took one

    @property
    def are_owed(self) -> bool:
        """Are there decisions that the store has not taken yet?"""
        return bool(self._owed)

    def may_retry(self) -> bool:
        """Is something left to settle that has not been tried too often? Counts the try."""
        if not self._owed or self._tries >= _TRIES:
            return False
        self._tries += 1
        return True

    def take_owed(self) -> dict[Receipt, SettleDecision]:
        """The decisions not written yet; they are the caller's now."""
        decisions, self._owed = self._owed, {}
        return decisions

    def settle(self, topic: Topic, group: Group, decisions: Mapping[Receipt, SettleDecision]) -> int:
        """Write decisions, and keep those that the store cannot take now. Returns how many came too late, after the
        lease had ended."""
        answers = self._settler.settle(topic, group, list(decisions), lambda receipt, _: decisions[receipt])
        late_count = 0
        for receipt, answer in zip(decisions, answers, strict=True):
            late_count += isinstance(answer, Conflict)
            if isinstance(answer, Unavailable):
                self._owed[receipt] = decisions[receipt]
        self._tries = 0 if len(self._owed) < len(decisions) else self._tries
        return late_count

    def give_back(self, topic: Topic, group: Group, receipts: Sequence[Receipt]) -> None:
        """Return messages that were not sent; no attempt is counted."""
        release = SettleDecision(Disposition.RELEASED)
        answers = self._settler.settle(topic, group, receipts, lambda *_: release)
        for receipt, answer in zip(receipts, answers, strict=True):
            if isinstance(answer, Unavailable):
                self._owed[receipt] = release
