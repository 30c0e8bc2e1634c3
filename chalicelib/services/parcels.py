"""Which messages go out together, and what their outcomes mean. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from math import isqrt

from ..domain.cursor import Fate
from ..domain.ladder import Retry, next_wait_ms, overridden
from ..domain.message import Draft
from ..domain.outcome import Outcome, Verdict
from ..domain.topic import Consumer, Group, Topic
from .claim import Delivery
from .settle import Ruling, again

HELD_PAUSE = timedelta(seconds=1)  # before what could not even be attempted is looked at again


_SMALL = 8  # a batch of so many is cut into single messages at once


def batch_limit(batch_size: int, delivery: Delivery) -> int:
    """With how many others a message may travel: after a failure in a piece of the batch, after the next one alone, and
    so on its last attempt; so one bad message ends up by itself and the others get through."""
    receipt = delivery.receipt
    failures = delivery.attempt - receipt.spent - 1
    if not failures:
        return batch_size if delivery.attempt < receipt.last_attempt else 1
    return (
        isqrt(batch_size)
        if failures == 1 and batch_size > _SMALL and delivery.attempt < receipt.last_attempt
        else 1
    )


def is_to_be_split(deliveries: Sequence[Delivery], outcomes: Sequence[Outcome]) -> bool:
    """Did a batch fail as a whole, by the word of who got it? Then one of its messages may be to blame for all."""
    return len(deliveries) > 1 and all(o.verdict is Verdict.FAILED and o.answered for o in outcomes)


def batch_of(group: Group, consumer: Consumer) -> int:
    """How many messages a consumer gets together."""
    return group.batch_size if consumer.kind == "function" or group.payload == "batch" else 1


def parcels(group: Group, consumer: Consumer, deliveries: Sequence[Delivery]) -> Iterator[list[Delivery]]:
    """Cut deliveries into parcels: one message each, unless the group asked for batches."""
    size = batch_of(group, consumer)
    parcel: list[Delivery] = []
    least = size
    for delivery in sorted(deliveries, key=lambda d: -batch_limit(size, d)) if size > 1 else deliveries:
        least = min(least, batch_limit(size, delivery))
        if len(parcel) >= least:
            yield parcel
            parcel = []
        parcel.append(delivery)
    if parcel:
        yield parcel


def _retry_of(topic: Topic, group: Group, draft: Draft) -> Retry:
    """The retry policy of a message: its own where it has one, else its group's, else its topic's."""
    return overridden(group.retry or topic.retry, draft.ladder, draft.jitter)


def ruling(
    topic: Topic, group: Group, delivery: Delivery, outcome: Outcome, now_ms: int, *, is_split: bool = False
) -> Ruling:
    """What becomes of a delivery after an attempt. `is_split`: in a batch that is to be cut and tried again at once;
    but nobody's last attempt comes at once."""
    told, took = outcome.detail or None, outcome.duration_ms
    if outcome.verdict is Verdict.DONE:
        return Ruling(Fate.SUCCESS, duration_ms=took)
    if outcome.verdict is Verdict.REFUSED:
        return Ruling(Fate.DEAD, reason="REJECTED", detail=told, duration_ms=took)
    if outcome.verdict is Verdict.UNDECODABLE:
        return Ruling(Fate.DEAD, reason="UNDECODABLE", detail=told)
    if outcome.verdict is Verdict.HELD:
        pause_ms = max(HELD_PAUSE // timedelta(milliseconds=1), outcome.retry_after_ms or 0)
        return Ruling(Fate.BACK, now_ms + pause_ms)
    receipt = delivery.receipt
    retry = _retry_of(topic, group, delivery.message.draft)
    if is_split and delivery.attempt + 1 < receipt.last_attempt:
        return Ruling(Fate.RETRY, 0, None, told, took)
    failed = delivery.attempt - receipt.spent
    due_ms = now_ms + next_wait_ms(retry, failed, delivery.message.id, outcome.retry_after_ms)
    if outcome.busy_ms:
        # Whoever did not answer may be at work still: nobody else may begin, nor what this message holds back.
        ended_ms = now_ms + outcome.busy_ms
        if delivery.attempt >= receipt.last_attempt:  # buried by the claim that finds it due
            return Ruling(Fate.RETRY, ended_ms, None, told, took)
        due_ms = max(due_ms, ended_ms)
    ruled = again(group, receipt, delivery.attempt, due_ms, told)
    return Ruling(ruled.fate, ruled.due_ms, ruled.reason, ruled.detail, took)
