"""Transactions: messages that stay invisible until their producer commits (RocketMQ's half messages)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from . import ids
from .limits import CHECK_TIMEOUT
from .message import Act, Draft, Message, with_acts
from .record import Failure
from .segment import ShardKey
from .timer import ANY, Timer, TimerKind

_NOWHERE = -1
_OF_PERIOD = 0.9  # the rest is for storing the answer
_TIMEOUT_MS = round(CHECK_TIMEOUT.total_seconds() * 1000)


class TransactionState(StrEnum):
    """PREPARED may be checked and decided, UNDECIDED only decided; COMMITTED and ROLLED_BACK are final."""

    PREPARED = "PREPARED"
    UNDECIDED = "UNDECIDED"
    COMMITTED = "COMMITTED"
    ROLLED_BACK = "ROLLED_BACK"


DECIDED = (TransactionState.COMMITTED, TransactionState.ROLLED_BACK)
# The states that an index lists, for a write more. The CHECK timers list PREPARED ones, and the log committed ones.
LISTED = (TransactionState.UNDECIDED, TransactionState.ROLLED_BACK)


@dataclass(frozen=True, slots=True)
class Transaction:
    """One message that waits for its producer's decision. `draft` is None once it is committed, and in rows
    of `Transactions.of_state`, which only list (`Transactions.get` reads it).

    `delay_ms` counts from the commit, `due_ms` is a time the producer named; once committed, it is when the message is
    due. `shard` is the one the producer named; once committed without a delay, the message's, at `offset`. `check_ms`
    is when the stored CHECK timer is due, `checks` how many calls were made, `last_answer` the answer to the last one.
    `answer_by_ms` is by when the answer to the check begun last should be stored, 0 once it is.
    `committed_by` is the id of the token that committed it, empty if unknown. After the decision it is kept for
    `keep_s` seconds. It can be found by its keys until `keys_until_s`. `version` rises with every write.
    """

    id: str
    topic: str
    topic_uid: str
    prepared_ms: int
    check_ms: int
    check_after_ms: int
    keep_s: int
    draft: Draft | None = None
    state: TransactionState = TransactionState.PREPARED
    check_url: str | None = None
    shard: int | None = None
    offset: int | None = None
    delay_ms: int = 0
    due_ms: int | None = None
    checks: int = 0
    last_answer: str | None = None
    answer_by_ms: int = 0
    decided_ms: int | None = None
    committed_by: str = ""
    keys_until_s: int = 0
    version: int = 0

    @property
    def message_id(self) -> str:
        """The id of its message, which stays the same when it is committed."""
        return ids.half_id(self.id)

    @property
    def failure(self) -> Failure:
        """What a filter asks for of an UNDECIDED one. Its last check was one period before `check_ms`."""
        return Failure(self.id, self.check_ms - self.check_after_ms, None, self.last_answer, self.draft)

    @property
    def sort_key(self) -> str:
        """Its sort key in lists: by time of preparation."""
        return f"{self.prepared_ms:015d}#{self.id}"

    @property
    def message(self) -> Message:
        """The producer's message; its shard and offset have no meaning."""
        assert self.draft is not None
        return Message(self.message_id, _NOWHERE, _NOWHERE, self.prepared_ms, self.draft)

    @property
    def expires_s(self) -> int | None:
        """When a decided transaction may be deleted; None: never."""
        if self.decided_ms is None:
            return None
        return max(self.decided_ms, self.due_ms or 0) // 1000 + self.keep_s


class Counted(NamedTuple):
    """A count; if `whole` is False, the true number may be higher."""

    number: int
    whole: bool = True


class CheckAnswer(NamedTuple):
    """The answer to a check: a decision, or None (unknown); `detail` is short, written by us, and safe to show."""

    decision: TransactionState | None
    detail: str


def answer_seconds(of: Transaction, next_ms: int, now_ms: int) -> float:
    """How long the producer may take to answer a check that begins now: to end before the next one, at `next_ms`, has
    to know of it. One that begins late, or by a clock that is ahead, has half of the period."""
    left_ms = min(max(next_ms - now_ms, of.check_after_ms // 2), of.check_after_ms)
    return min(CHECK_TIMEOUT.total_seconds(), _OF_PERIOD * left_ms / 1000)


def may_begin(of: Transaction, next_ms: int, now_ms: int) -> bool:
    """May the check begin after which the next one is at `next_ms`? Once, and again while its answer is overdue and
    there is time for another one."""
    is_overdue = 0 < of.answer_by_ms <= now_ms
    has_time = now_ms + _TIMEOUT_MS < next_ms
    return of.check_ms < next_ms or (of.check_ms == next_ms and is_overdue and has_time)


def answered(of: Transaction, answer: CheckAnswer) -> Transaction:
    """The transaction after a check, which counts."""
    return replace(of, checks=of.checks + 1, last_answer=answer.detail, answer_by_ms=0)


def asked_again(of: Transaction, now_ms: int) -> Transaction:
    """An UNDECIDED transaction that is checked from now on as if it were new."""
    return replace(of, state=TransactionState.PREPARED, check_ms=now_ms, checks=0, answer_by_ms=0)


def check_timer(of: Transaction) -> Timer:
    """The timer that starts the transaction's checks, repeated until it is deleted."""
    anywhere = ShardKey(of.topic, of.topic_uid, ANY)
    return Timer(of.check_ms, of.id, TimerKind.CHECK, anywhere, every_ms=of.check_after_ms)


def committed_draft(of: Transaction, now_ms: int) -> Draft:
    """The message after a commit now: times relative to its acceptance count from now."""
    assert of.draft is not None
    expected_ms = of.due_ms if of.due_ms is not None else of.prepared_ms + of.delay_ms
    due_ms = max(now_ms, of.due_ms) if of.due_ms is not None else now_ms + of.delay_ms
    expires_ms = of.draft.expires_ms
    return replace(
        of.draft,
        shard=of.shard,
        due_ms=due_ms if due_ms > now_ms else None,
        expires_ms=None if expires_ms is None else expires_ms + due_ms - expected_ms,
        accepted_ms=of.prepared_ms,
    )


def committed(
    of: Transaction, now_ms: int, *, shard: int | None, offset: int | None = None, due_ms: int | None = None
) -> Transaction:
    """The transaction after its commit, which gave the message an offset or a due time."""
    ended = replace(of, state=TransactionState.COMMITTED, draft=None, answer_by_ms=0, decided_ms=now_ms)
    return replace(ended, shard=shard, offset=offset, due_ms=due_ms)


def rolled_back(of: Transaction, now_ms: int, by: str = "") -> Transaction:
    """The transaction after its rollback."""
    assert of.draft is not None
    draft = with_acts(of.draft, Act("CANCELLED", now_ms, by))
    return replace(of, state=TransactionState.ROLLED_BACK, draft=draft, answer_by_ms=0, decided_ms=now_ms)
