"""Writes the decisions of one run, and keeps those that the store could not take yet.

Called by `run.py`, and by `claims.py` for messages that it returns; `settle.py` in the package `consume` does the
writing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import isqrt

from ...domain.call_result import CallResult, Verdict
from ...domain.cursor import Disposition
from ...domain.errors import Conflict, Unavailable
from ...domain.receipt import Receipt
from ...domain.topic import Consumer, ConsumerKind, Group, Payload, Topic
from ..consume.claimant import ClaimedMessage
from ..consume.decision import SettleDecision
from ..consume.settle import Settler

_RELEASE = SettleDecision(Disposition.RELEASED)
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

    def owes(self, receipt: Receipt) -> bool:
        """Is this decision one of them?"""
        return receipt in self._owed

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

    def settle(self, topic: Topic, group: Group, decisions: Mapping[Receipt, SettleDecision]) -> set[Receipt]:
        """Write decisions, and keep those that the store cannot take now. Returns those that came too late, after the
        lease had ended."""
        answers = self._settler.settle(topic, group, list(decisions), lambda receipt, _: decisions[receipt])
        late: set[Receipt] = set()
        for receipt, answer in zip(decisions, answers, strict=True):
            if isinstance(answer, Conflict):
                late.add(receipt)
            if isinstance(answer, Unavailable):
                self._owed[receipt] = decisions[receipt]
        self._tries = 0 if len(self._owed) < len(decisions) else self._tries
        return late

    def give_back(self, topic: Topic, group: Group, receipts: Sequence[Receipt]) -> None:
        """Return messages that were not sent; no attempt is counted."""
        answers = self._settler.settle(topic, group, receipts, lambda *_: _RELEASE)
        for receipt, answer in zip(receipts, answers, strict=True):
            if isinstance(answer, Unavailable):
                self._owed[receipt] = _RELEASE

    def give_back_behind(self, topic: Topic, group: Group, last: Receipt, next_one: Receipt) -> None:
        """Return the rest of a run, from `next_one` on: after `last`, if that is not settled yet."""
        if last in self._owed:
            self._owed[next_one] = _RELEASE
        else:
            self.give_back(topic, group, [next_one])


_SMALL = 8  # a batch of this size or less is split into single messages at once


def batch_limit(batch_size: int, claimed_message: ClaimedMessage) -> int:
    """The largest batch that a message may be in: the full size at first, its square root after one failure, 1 after
    two failures or on the last attempt. So a bad message ends up alone, and the others get through."""
    receipt = claimed_message.receipt
    failures = receipt.attempt_since_redrive(claimed_message.attempt) - 1
    if failures > 1 or claimed_message.attempt >= receipt.last_attempt:
        return 1
    if not failures:
        return batch_size
    return isqrt(batch_size) if batch_size > _SMALL else 1


def is_to_be_split(claimed_messages: Sequence[ClaimedMessage], results: Sequence[CallResult]) -> bool:
    """Did the subscriber itself answer that the whole batch failed? Then one of its messages may be the cause."""
    return len(claimed_messages) > 1 and all(r.verdict is Verdict.FAILED and r.is_own_answer for r in results)


def batch_of(group: Group, consumer: Consumer) -> int:
    """How many messages a consumer gets together."""
    return group.batch_size if consumer.kind == ConsumerKind.FUNCTION or group.payload == Payload.BATCH else 1


def in_units(claimed_messages: Sequence[ClaimedMessage]) -> list[list[ClaimedMessage]]:
    """The messages that may be in processing at once, each with those behind it in its run."""
    by_unit: dict[object, list[ClaimedMessage]] = {}
    for each in claimed_messages:
        by_unit.setdefault(each.unit if each.is_in_run else each.receipt, []).append(each)
    return list(by_unit.values())


def in_batches(
    group: Group, consumer: Consumer, claimed_messages: Sequence[ClaimedMessage]
) -> Iterator[list[ClaimedMessage]]:
    """Cut claimed messages into batches, a request each: of one message, unless the group asked for more. Of a run, the
    messages of one unit: they are sent one after the other."""
    if any(each.is_in_run for each in claimed_messages):
        yield from in_units(claimed_messages)
        return
    limit_of = partial(batch_limit, batch_of(group, consumer))
    batch: list[ClaimedMessage] = []
    for claimed_message in sorted(claimed_messages, key=limit_of, reverse=True):
        if len(batch) >= limit_of(claimed_message):
            yield batch
            batch = []
        batch.append(claimed_message)
    if batch:
        yield batch
