"""Decides about a delivery after an attempt: done, retry, or dead letter. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from ...domain.call_result import Answer, CallResult, Verdict
from ...domain.cursor import Disposition
from ...domain.message import DeadReason
from ...domain.receipt import Receipt
from ...domain.retry_policy import wait_ms
from ...domain.topic import Group, Topic
from ...modes import POLICIES
from .claimant import ClaimedMessage

HELD_PAUSE = timedelta(seconds=1)  # before a message that could not even be attempted is tried again


@dataclass(frozen=True, slots=True)
class SettleDecision:
    """What was decided about one delivery. `due_ms` is the earliest time of its next attempt (0: at once); `reason` is
    a dead letter's; `error` says what went wrong, for people: it becomes the record's `last_error` and the attempt's
    `detail` in the trace. With `by_ladder`, the due time comes from the message's
    ladder instead: it is not read yet. `called`: the host that was called instead of the lease's owner.

    RETRY waits in the cursor, RETRY_LATER leaves it for a timer (see `decision_after_failure`)."""

    disposition: Disposition
    due_ms: int = 0
    reason: str | None = None
    error: str | None = None
    duration_ms: int | None = None
    by_ladder: bool = False
    answer: Answer | None = None
    called: str = ""


Decide = Callable[[Receipt, int], SettleDecision]  # receipt and attempt number → decision


def decision_after(
    topic: Topic,
    group: Group,
    claimed_message: ClaimedMessage,
    result: CallResult,
    now_ms: int,
    *,
    is_split: bool = False,
) -> SettleDecision:
    """The decision after an attempt. `is_split`: the message was in a batch that is split (`is_to_be_split` in
    `push/batches.py`) and tried again at once; the last attempt is never immediate."""
    error, duration_ms = result.detail or None, result.duration_ms
    receipt, message = claimed_message.receipt, claimed_message.message
    if result.verdict is Verdict.DONE:
        return SettleDecision(Disposition.SUCCESS, duration_ms=duration_ms)
    if result.verdict is Verdict.REFUSED:
        rejected = DeadReason.REJECTED
        return SettleDecision(Disposition.DEAD, reason=rejected, error=error, duration_ms=duration_ms)
    if result.verdict is Verdict.UNDECODABLE:
        return SettleDecision(Disposition.DEAD, reason=DeadReason.UNDECODABLE, error=error)
    if result.verdict is Verdict.NOT_ATTEMPTED:
        pause_ms = max(HELD_PAUSE // timedelta(milliseconds=1), result.retry_after_ms or 0)
        return SettleDecision(Disposition.RELEASED, receipt.within_expiry(now_ms + pause_ms, now_ms))
    number = receipt.attempt_since_redrive(claimed_message.attempt)
    took_ms = now_ms - receipt.claimed_ms
    pause_ms = wait_ms(topic, group, message.id, message.draft, number, result.retry_after_ms, took_ms)
    due_ms = receipt.within_expiry(now_ms + pause_ms, now_ms)
    if is_split and claimed_message.attempt + 1 < receipt.last_attempt:
        due_ms = 0
    elif result.busy_ms:
        # A consumer that did not answer may still be working (`busy_ms`): until then no other may start on this
        # message, nor on those ordered behind it.
        ended_ms = now_ms + result.busy_ms
        if claimed_message.attempt >= receipt.last_attempt:
            # the claim that finds it due makes the dead letter
            return SettleDecision(Disposition.RETRY, ended_ms, None, error, duration_ms)
        due_ms = max(due_ms, ended_ms)
    decision = decision_after_failure(group, receipt, claimed_message.attempt, due_ms, error)
    return replace(decision, duration_ms=duration_ms)


def decision_after_failure(
    group: Group, receipt: Receipt, attempt: int, due_ms: int, error: str | None
) -> SettleDecision:
    """The decision about a failed delivery: another attempt at `due_ms`, by the group's mode, or a dead letter if none
    is left. 0 means at once (not: no time is given): it waits in the cursor in any mode, without a timer."""
    if attempt >= receipt.last_attempt:
        return SettleDecision(Disposition.DEAD, reason=DeadReason.ATTEMPTS_EXHAUSTED, error=error)
    # In SERIAL what failed holds back its unit, so it waits in the cursor.
    keeps_its_place = POLICIES[group.mode].holds_back
    disposition = Disposition.RETRY if keeps_its_place or not due_ms else Disposition.RETRY_LATER
    return SettleDecision(disposition, due_ms, error=error)
