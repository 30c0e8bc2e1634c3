"""Settling deliveries: ack, nack, extend. A receipt whose lease has passed on changes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..domain import cursor as algebra
from ..domain.cursor import Fate, Result
from ..domain.errors import Conflict, HeadraceError, Malformed
from ..domain.signing import Receipt, open_receipt
from ..domain.topic import CursorKey, Group, Topic, cursor_key
from ..ports import Clock, Record
from .cursor_state import CursorStates

_RECORDS_PER_WRITE = 45  # each may need two actions; a transaction takes 100
_ENTRIES_PER_WRITE = 90  # an update expression holds 4 KB

Answer = HeadraceError | None
Decision = tuple[Result, Record | None]
Decide = Callable[[Receipt, int], Decision]


@dataclass(frozen=True, slots=True)
class Nack:
    """How to give messages back: after a delay, or for good."""

    delay_ms: int = 0
    dead_letter: bool = False
    reason: str | None = None


class Settler:
    """Settles receipts, all of one lease in one write. Answers stand in the order of the receipts."""

    def __init__(self, states: CursorStates, clock: Clock, signing_key: Callable[[], bytes]) -> None:
        self._states = states
        self._clock = clock
        self._signing_key = signing_key

    def ack(self, topic: Topic, group: Group, receipts: Sequence[str]) -> list[Answer]:
        """Record SUCCESS; per receipt None or why not (RECEIPT_STALE, RECEIPT_INVALID)."""
        now_ms = self._clock.now_ms()

        def decide(receipt: Receipt, attempt: int) -> Decision:
            late = _record(receipt, "SUCCESS", attempt, now_ms) if attempt > 1 else None
            return Result(receipt.offset, Fate.SUCCESS), late

        return self._settle(topic, group, receipts, decide)

    def nack(self, topic: Topic, group: Group, receipts: Sequence[str], how: Nack) -> list[Answer]:
        """Give messages back for another attempt, or bury them; per receipt None or why not."""
        now_ms = self._clock.now_ms()
        due_ms = now_ms + how.delay_ms if how.delay_ms else 0

        def decide(receipt: Receipt, attempt: int) -> Decision:
            if how.dead_letter or attempt >= receipt.max_attempts:
                why = "REJECTED" if how.dead_letter else "ATTEMPTS_EXHAUSTED"
                return Result(receipt.offset, Fate.DEAD), _record(
                    receipt, "DEAD", attempt, now_ms, why, how.reason
                )
            told = _record(receipt, "RETRYING", attempt, now_ms, None, how.reason) if how.reason else None
            return Result(receipt.offset, Fate.RETRY, due_ms), told

        return self._settle(topic, group, receipts, decide)

    def extend(self, topic: Topic, group: Group, receipts: Sequence[str], lease_seconds: int) -> list[Answer]:
        """Move the deadline of the receipts' leases to `lease_seconds` from now."""
        deadline_ms = self._clock.now_ms() + lease_seconds * 1000
        answers, leases = self._open(topic, group, receipts)
        for (key, token), members in leases.items():
            for i, receipt in members:
                answers[i] = self._extend(key, token, receipt.offset, deadline_ms)
        return answers

    def _extend(self, key: CursorKey, token: str, offset: int, deadline_ms: int) -> Answer:
        state = self._states.last(key)
        for fresh in (False, True, True, True):
            state = self._states.read(key) if fresh else state
            lease = state.cursor.leases.get(token)
            if lease is None or offset not in lease.attempts():
                continue
            if lease.deadline_ms == deadline_ms:
                return None  # another receipt of the same lease has done it
            after = algebra.extend(state.cursor, token, deadline_ms)
            try:
                if after and self._states.write(key, state, algebra.change(state.cursor, after)):
                    return None
            except HeadraceError as error:
                return error
        return _stale()

    def _open(
        self, topic: Topic, group: Group, texts: Sequence[str]
    ) -> tuple[list[Answer], dict[tuple[CursorKey, str], list[tuple[int, Receipt]]]]:
        """Verify receipts and sort them by lease."""
        answers: list[Answer] = [None] * len(texts)
        leases: defaultdict[tuple[int, str, str], list[tuple[int, Receipt]]] = defaultdict(list)
        signing_key = self._signing_key()
        for i, text in enumerate(texts):
            receipt = open_receipt(signing_key, text)
            if receipt is None or receipt.group_uid != group.uid:
                answers[i] = Malformed("RECEIPT_INVALID", "This is not a receipt of this group.")
            else:
                leases[receipt.shard, receipt.consumer_uid, receipt.token].append((i, receipt))
        return answers, {
            (cursor_key(topic, group, shard, consumer_uid), token): members
            for (shard, consumer_uid, token), members in leases.items()
        }

    def _settle(self, topic: Topic, group: Group, texts: Sequence[str], decide: Decide) -> list[Answer]:
        answers, leases = self._open(topic, group, texts)
        for (key, token), members in leases.items():
            settled, error = self._settle_lease(key, token, [receipt for _, receipt in members], decide)
            for i, receipt in members:
                answers[i] = None if receipt.offset in settled else error or _stale()
                settled.discard(receipt.offset)  # the same receipt twice in one call: the second is stale
        return answers

    def _settle_lease(
        self, key: CursorKey, token: str, receipts: Sequence[Receipt], decide: Decide
    ) -> tuple[set[int], HeadraceError | None]:
        """The offsets that were settled, in as few writes as can hold them, and what stopped the others."""
        state, fresh = self._states.last(key), False
        settled: set[int] = set()
        left = list({receipt.offset: receipt for receipt in receipts}.values())
        while left:
            lease = state.cursor.leases.get(token)
            attempts = lease.attempts() if lease else {}
            decisions = [
                decide(receipt, attempts[receipt.offset]) for receipt in left if receipt.offset in attempts
            ]
            if len(decisions) < len(left) and not fresh:
                state, fresh = self._states.read(key), True
                continue
            results, records = _that_fit(decisions)
            after, held = algebra.settle(state.cursor, token, results)
            if not held:
                break
            try:
                written = self._states.write(key, state, algebra.change(state.cursor, after), records)
            except HeadraceError as error:
                return settled, error
            if written:
                settled.update(result.offset for result in held)
                left = [receipt for receipt in left if receipt.offset not in settled]
            state = written or self._states.last(key)
        return settled, None


def _that_fit(decisions: Sequence[Decision]) -> tuple[list[Result], list[Record]]:
    """The first decisions that one write can hold: neighbours share an entry, records need two actions each."""
    results: list[Result] = []
    records: list[Record] = []
    entries = 0
    for result, record in sorted(decisions, key=lambda d: d[0].offset):
        neighbour = results and results[-1].offset + 1 == result.offset and results[-1].fate is result.fate
        entries += not neighbour
        if entries > _ENTRIES_PER_WRITE or len(records) + (record is not None) > _RECORDS_PER_WRITE:
            break
        results.append(result)
        records += [record] if record else []
    return results, records


def _record(
    receipt: Receipt,
    status: str,
    attempts: int,
    at_ms: int,
    reason: str | None = None,
    error: str | None = None,
) -> Record:
    return Record(receipt.shard, receipt.offset, status, attempts, at_ms, receipt.consumer_uid, reason, error)


def _stale() -> Conflict:
    return Conflict(
        "RECEIPT_STALE", "The lease has passed on or the message is settled; nothing was changed."
    )
