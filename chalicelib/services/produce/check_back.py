"""Check-backs: Headrace asks a producer that has not decided for the state of its transaction.

The mover stores the CHECK timer of the next time before it hands the check over, so that no crash ends a transaction's
checks. A check begins under a condition (the transaction is PREPARED and unchanged since it was read). So one call is
made at a time, however often the check is handed over, and none after the decision. The call is counted with its
answer. If a crash or the store prevents the call, or its answer is lost, nothing is counted: the answer becomes
overdue, and the next run of the check repeats it (Lambda's next attempt, or else the next timer's check).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace

from ...domain import transaction as states
from ...domain.errors import Conflict, NotFound, Unavailable
from ...domain.limits import CHECK_TIMEOUT, MAX_CHECKS
from ...domain.segment import ShardKey
from ...domain.timer import ANY, Timer, TimerKind
from ...domain.transaction import CheckAnswer, Transaction, TransactionState
from ...ports.world import Clock, Sender
from ...store import Marks, Timers, Transactions
from ..core.counters import CHECKS, Counters
from .transactions import Transactor

_MARGIN_SECONDS = 5  # for what follows an answer
_PAUSES_SECONDS = (1, 2, 4, 8, 16)  # before an answer is tried again that the store did not take


@dataclass(frozen=True, slots=True)
class Check:
    """One check of one transaction; `next_ms` is when its CHECK timer comes again, and identifies the check."""

    transaction_id: str
    next_ms: int


@dataclass(frozen=True)
class Checker:
    """Asks producers."""

    transactions: Transactions
    transactor: Transactor
    timers: Timers
    sender: Sender
    clock: Clock
    threads: Callable[[], Executor]
    counters: Counters
    marks: Marks

    def check(self, checks: Sequence[Check], seconds_left: Callable[[], float]) -> Counter[str]:
        """Make these checks beside one another; how many ended in which way. What is "unavailable", because the store
        has no answer for it, or "postponed", because it could not end within `seconds_left()`, may be made again."""

        def check(one: Check) -> str:
            try:
                return self._check(one, seconds_left)
            except Unavailable:
                return "unavailable"

        with self.threads() as pool:
            return Counter(pool.map(check, checks))

    def _check(self, check: Check, seconds_left: Callable[[], float]) -> str:
        transaction = self.transactions.get(check.transaction_id)
        if transaction is None or transaction.state is not TransactionState.PREPARED:
            self._end(check)
            return "decided before"
        if not states.may_begin(transaction, check.next_ms, self.clock.now_ms()):
            return "repeated"
        new = replace(transaction, check_ms=check.next_ms)
        try:
            topic = self.transactor.topic_of(transaction)
        except NotFound:
            self.transactor.decide(transaction, TransactionState.ROLLED_BACK)
            return "topic gone"
        if transaction.check_url is None:
            return "UNDECIDED" if self._give_up(transaction, new) else "repeated"
        if seconds_left() < CHECK_TIMEOUT.total_seconds() + _MARGIN_SECONDS:
            return "postponed"
        secrets = self.transactor.secrets(topic)
        now_ms = self.clock.now_ms()
        seconds = states.answer_seconds(transaction, check.next_ms, now_ms)
        stored_in_seconds = seconds + sum(_PAUSES_SECONDS) + _MARGIN_SECONDS
        new = replace(new, answer_by_ms=now_ms + round(stored_in_seconds * 1000))
        if not self.transactions.change(transaction, new):
            return "repeated"
        self.counters.add(CHECKS, 1)
        return self._conclude_in_time(new, self.sender.ask(new, secrets, seconds), seconds_left)

    def _end(self, check: Check) -> None:
        anywhere = ShardKey("", "", ANY)
        timer = Timer(due_ms=check.next_ms, id=check.transaction_id, kind=TimerKind.CHECK, shard=anywhere)
        self.timers.drop([timer])

    def _conclude_in_time(
        self, version: Transaction, answer: CheckAnswer, seconds_left: Callable[[], float]
    ) -> str:
        """Try it until the store takes the answer, at most until the function's time ends or a check may begin."""
        until_ms = min(version.check_ms, version.answer_by_ms)
        for tries, pause in enumerate(_PAUSES_SECONDS):
            try:
                return self._conclude(version, answer, is_first=tries == 0)
            except Unavailable:
                if pause > min(seconds_left() - _MARGIN_SECONDS, (until_ms - self.clock.now_ms()) / 1000):
                    raise
            self.clock.sleep(pause)
        return self._conclude(version, answer, is_first=False)

    def _conclude(self, version: Transaction, answer: CheckAnswer, *, is_first: bool) -> str:
        """Do what the producer said; count the call, unless a try of which the store gave no answer may have counted
        it: where a later check has begun since, the row does not tell."""
        try:
            while True:
                transaction = self.transactor.find(version.id)
                if answer.decision:
                    return self.transactor.decide(transaction, answer.decision, answer).state
                if transaction.state is not TransactionState.PREPARED:
                    return "decided before"
                is_latest = transaction.check_ms == version.check_ms
                if transaction.checks > version.checks if is_latest else not is_first:
                    return "unknown"
                new = states.answered(transaction, answer)
                if new.checks >= MAX_CHECKS:
                    if self._give_up(transaction, new):
                        return "UNDECIDED"
                elif self.transactions.change(transaction, new):
                    return "unknown"
                is_first = False
        except (Conflict, NotFound):
            return "decided before"

    def _give_up(self, transaction: Transaction, new: Transaction) -> bool:
        """From now on it is only decided by a commit or a rollback."""
        undecided_version = replace(new, state=TransactionState.UNDECIDED)
        is_ours = self.transactions.change(transaction, undecided_version)
        if is_ours:
            with suppress(Unavailable):
                self.transactions.end_checks(new)
                self.marks.note_moving(transaction.topic)  # a person has to decide
        return is_ours
