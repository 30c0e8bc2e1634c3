"""Settling deliveries: ack, nack, extend, and the outcomes of pushes. A receipt of a lease that has ended changes
nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial

from ...domain.cursor import Cursor, Disposition
from ...domain.errors import Malformed
from ...domain.message import DeadReason
from ...domain.receipt import Receipt, verify_receipt
from ...domain.topic import CursorKey, Group, Topic, cursor_key
from ..core.cursor_store import CursorSnapshot
from ..core.secrets import SigningKeys
from .decision import Decide, SettleDecision, decision_after_failure
from .lease_settlement import LeaseSettlement, SettleAnswer, SettleContext, is_stale, out_of_order, stale
from .settle_steps import Step


@dataclass(frozen=True, slots=True)
class Nack:
    """How to return messages: for another attempt after a delay, or as dead letters. `delay_ms`: 0 is at once; None,
    which a call without a delay means, is by the message's ladder, or at once if `untried`. `untried`: no attempt is
    counted."""

    delay_ms: int | None = 0
    dead_letter: bool = False
    reason: str | None = None
    untried: bool = False


Alive = Callable[[Topic, Group, str], None]  # the consumer with this uid has just shown a sign of life
_Answers = list[SettleAnswer]
Members = list[tuple[int, Receipt]]  # the receipts of one lease, each with its place in the call


class Settler:
    """Settles deliveries, all of one lease in one write. Answers stand in the order of the receipts."""

    def __init__(self, context: SettleContext, signing_keys: SigningKeys, alive: Alive) -> None:
        """`alive` is called with consumers that settle or extend their deliveries."""
        self._context = context
        self._signing_keys = signing_keys
        self._alive = alive

    def ack(self, topic: Topic, group: Group, receipts: Sequence[str]) -> list[SettleAnswer]:
        """Record SUCCESS; per receipt None, Already, or the error (RECEIPT_STALE, RECEIPT_INVALID)."""
        acks = self.acks(topic, group, receipts)
        acks.settle()
        return acks.answers

    def acks(self, topic: Topic, group: Group, receipts: Sequence[str]) -> Acks:
        """The acks of a receive (see `Acks`)."""
        answers, valid_receipts = self._open(group, receipts)
        leases = list(self._by_lease(topic, group, valid_receipts))
        return Acks(answers, leases, partial(self._settle_valid, topic, group, answers))

    def nack(self, topic: Topic, group: Group, receipts: Sequence[str], how: Nack) -> list[SettleAnswer]:
        """Return messages for another attempt, or make them dead letters; per receipt None, Already, or the error."""
        now_ms = self._context.clock.now_ms()
        by_ladder = how.delay_ms is None and not how.untried
        due_ms = now_ms + how.delay_ms if how.delay_ms else 0
        if by_ladder:
            due_ms = now_ms  # until `_by_ladder` has found the wait: 0 would be an attempt at once

        def rule(receipt: Receipt, attempt: int) -> SettleDecision:
            if how.untried:
                return SettleDecision(Disposition.RELEASED, due_ms and receipt.within_expiry(due_ms, now_ms))
            if how.dead_letter:
                return SettleDecision(Disposition.DEAD, reason=DeadReason.REJECTED, error=how.reason)
            retry_ms = due_ms and receipt.within_expiry(due_ms, now_ms)
            decision = decision_after_failure(group, receipt, attempt, retry_ms, how.reason)
            return replace(decision, by_ladder=by_ladder)

        answers, valid_receipts = self._open(group, receipts)
        self._settle_valid(topic, group, answers, valid_receipts, rule)
        return answers

    def extend(self, topic: Topic, group: Group, receipts: Sequence[str], lease_seconds: int) -> _Answers:
        """Move the deadline of the receipts' leases to `lease_seconds` from now. A lease with messages that are not
        named is only made longer, since another worker may hold them."""
        deadline_ms = self._context.clock.now_ms() + lease_seconds * 1000
        answers, valid_receipts = self._open(group, receipts)
        owners: set[str] = set()
        for lease, members in self._by_lease(topic, group, valid_receipts):
            offsets = {receipt.leased_offset for _, receipt in members}
            leased_offsets, error = lease.extend(offsets, deadline_ms)
            owners.add(lease.owner)
            for i, receipt in members:
                answers[i] = error if receipt.leased_offset in leased_offsets else stale()
        self._note_signs_of_life(topic, group, owners)
        return answers

    def _open(self, group: Group, receipt_texts: Sequence[str]) -> tuple[list[SettleAnswer], Members]:
        """Verify receipts; the valid ones, with their index in the request."""
        answers: list[SettleAnswer] = [None] * len(receipt_texts)
        good: Members = []
        for i, text in enumerate(receipt_texts):
            receipt = self._signing_keys.first_fitting(partial(verify_receipt, text=text))
            if receipt is None or receipt.group_uid != group.uid:
                answers[i] = Malformed("RECEIPT_INVALID", "This is not a receipt of this group.")
            else:
                good.append((i, receipt))
        return answers, good

    def _settle_valid(
        self, topic: Topic, group: Group, answers: list[SettleAnswer], valid_receipts: Members, rule: Decide
    ) -> None:
        """Settle these receipts, and put their results in `answers`."""
        owners: set[str] = set()
        results = self._settle(topic, group, [receipt for _, receipt in valid_receipts], rule, owners)
        for (i, _), answer in zip(valid_receipts, results, strict=True):
            answers[i] = answer
        self._note_signs_of_life(topic, group, owners)
        not_held = [each for each, answer in zip(valid_receipts, results, strict=True) if is_stale(answer)]
        for lease, members in self._by_lease(topic, group, not_held):
            for i, receipt in members:
                answers[i] = lease.answer_to_repeat(receipt, rule)

    def settle(self, topic: Topic, group: Group, receipts: Sequence[Receipt], rule: Decide) -> _Answers:
        """Settle deliveries as `rule` decides; per receipt None or the error."""
        return self._settle(topic, group, receipts, rule, set())

    def _settle(
        self, topic: Topic, group: Group, receipts: Sequence[Receipt], rule: Decide, owners: set[str]
    ) -> list[SettleAnswer]:
        """As `settle`; adds the owners of the leases to `owners`."""
        answers: list[SettleAnswer] = [None] * len(receipts)
        for lease, members in self._by_lease(topic, group, enumerate(receipts)):
            settled_offsets, error = lease.settle([receipt for _, receipt in members], rule)
            owners.add(lease.owner)
            for i, receipt in members:
                refusal = out_of_order if receipt.leased_offset in lease.holes else stale
                answers[i] = None if receipt.leased_offset in settled_offsets else error or refusal()
                settled_offsets.discard(receipt.leased_offset)  # the same receipt again in this call is stale
        return answers

    def _note_signs_of_life(self, topic: Topic, group: Group, owners: set[str]) -> None:
        for owner in owners - {""}:
            self._alive(topic, group, owner)

    def _by_lease(
        self, topic: Topic, group: Group, receipts: Iterable[tuple[int, Receipt]]
    ) -> Iterator[tuple[LeaseSettlement, Members]]:
        by_lease: defaultdict[tuple[CursorKey, str], Members] = defaultdict(list)
        for i, receipt in receipts:
            shard = receipt.shard if receipt.entry is None else None
            key = cursor_key(topic, group, shard, receipt.consumer_uid)
            by_lease[key, receipt.token].append((i, receipt))
        for (key, token), members in by_lease.items():
            lease = LeaseSettlement(context=self._context, topic=topic, group=group, key=key, token=token)
            yield lease, members


class Acks:
    """The acks of a receive. A claim from the cursor of one of their leases settles that lease in its own write, if
    nothing else has to be written for it (`within`, `note_written`); `settle` settles all others."""

    def __init__(
        self,
        answers: list[SettleAnswer],
        leases: list[tuple[LeaseSettlement, Members]],
        settle: Callable[[Members, Decide], None],
    ) -> None:
        """`answers` are the results so far, in the order of the receipts; `leases` those of the valid receipts."""
        self.answers = answers
        self._leases = leases
        self._settle = settle
        self._shared: tuple[LeaseSettlement, Members, list[Step]] | None = None

    def settle(self, claimed: Set[CursorKey] = frozenset()) -> None:
        """Settle what is not settled yet, except for one lease that a claim from one of these cursors can settle."""
        kept = next(([each] for each in self._leases if each[0].key in claimed and _steps(*each)), [])
        members = [member for each in self._leases if each not in kept for member in each[1]]
        self._leases = kept
        self._settle(members, _success)

    def within(self, key: CursorKey, state: CursorSnapshot) -> Cursor:
        """The cursor of a claim, with one of the leases settled if that needs no other write."""
        self._shared = None
        for lease, members in self._leases:
            if lease.key == key and (steps := _steps(lease, members, state)):
                self._shared = lease, members, steps
                return lease.after(state.cursor, steps)
        return state.cursor

    def note_written(self) -> None:
        """The cursor that `within` gave is stored."""
        if self._shared:
            lease, members, steps = self._shared
            lease.note_written(members[0][1].claimed_ms, steps)
            self._leases.remove((lease, members))
            self._shared = None


def _steps(lease: LeaseSettlement, members: Members, state: CursorSnapshot | None = None) -> list[Step]:
    return lease.steps_in(state, [receipt for _, receipt in members], _success)


def _success(_receipt: Receipt, _attempt: int) -> SettleDecision:
    return SettleDecision(Disposition.SUCCESS)
