"""Which messages go out together, and what their results mean. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import isqrt

from ...domain.call_result import CallResult, Verdict
from ...domain.topic import Consumer, ConsumerKind, Group, Payload
from ..consume.claimant import ClaimedMessage

_SMALL = 8  # a batch of this size or less is split into single messages at once


def batch_limit(batch_size: int, claimed_message: ClaimedMessage) -> int:
    """The largest batch that a message may be in: the full size at first, its square root after one failure, 1 after
    two failures or on the last attempt. So a bad message ends up alone, and the others get through."""
    receipt = claimed_message.receipt
    failures = receipt.attempt_since_redrive(claimed_message.attempt) - 1
    if not failures:
        return batch_size if claimed_message.attempt < receipt.last_attempt else 1
    return (
        isqrt(batch_size)
        if failures == 1 and batch_size > _SMALL and claimed_message.attempt < receipt.last_attempt
        else 1
    )


def is_to_be_split(claimed_messages: Sequence[ClaimedMessage], results: Sequence[CallResult]) -> bool:
    """Did the subscriber itself answer that the whole batch failed? Then one of its messages may be the cause."""
    return len(claimed_messages) > 1 and all(r.verdict is Verdict.FAILED and r.is_own_answer for r in results)


def batch_of(group: Group, consumer: Consumer) -> int:
    """How many messages a consumer gets together."""
    return group.batch_size if consumer.kind == ConsumerKind.FUNCTION or group.payload == Payload.BATCH else 1


def in_batches(
    group: Group, consumer: Consumer, claimed_messages: Sequence[ClaimedMessage]
) -> Iterator[list[ClaimedMessage]]:
    """Cut claimed messages into batches, a request each: of one message, unless the group asked for more."""
    limit_of = partial(batch_limit, batch_of(group, consumer))
    batch: list[ClaimedMessage] = []
    for claimed_message in sorted(claimed_messages, key=limit_of, reverse=True):
        if len(batch) >= limit_of(claimed_message):
            yield batch
            batch = []
        batch.append(claimed_message)
    if batch:
        yield batch
