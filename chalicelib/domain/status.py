"""The status of a delivery or a message; and the combination of several: of a message over its groups, of a broadcast's
delivery over its consumers. Also why a receive brings nothing."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum


class Status(StrEnum):
    """Of a delivery; DELAYED and PREPARED are of a message before its log, CANCELLED is of both. SKIPPED is in records
    only: a purge dropped the delivery, and its group is not owed the message any more."""

    NEW = "NEW"
    RUNNING = "RUNNING"
    RETRYING = "RETRYING"
    SUCCESS = "SUCCESS"
    DEAD = "DEAD"
    CANCELLED = "CANCELLED"
    DELAYED = "DELAYED"
    PREPARED = "PREPARED"
    SKIPPED = "SKIPPED"


class Because(StrEnum):
    """Why a receive brings no message; of several reasons the first counts."""

    PAUSED = "paused"  # the group
    RATE_LIMITED = "rate_limited"  # the group had what its rate allows for now
    NOT_OWNER = "not_owner"  # other consumers have the shards, or a part of their messages
    CURSOR_FULL = "cursor_full"  # a shard's position has no space until something is settled
    KEYS_WAIT = "keys_wait"  # behind earlier messages of their ordering key, which are in flight or failed
    IN_FLIGHT = "in_flight"  # all that is there is leased, or waits for its time
    EMPTY = "empty"


def first_reason(reasons: Collection[Because]) -> Because:
    """The reason that counts; `empty` if there is none."""
    return next((each for each in Because if each in reasons), Because.EMPTY)


OPEN = (Status.RUNNING, Status.RETRYING)  # the first of these that is among them is the status of all
OVER = (Status.SUCCESS, Status.DEAD, Status.CANCELLED)


def combined(statuses: Collection[Status]) -> Status:
    """Combine statuses as in the table of docs/state_machine.md: an open one wins; if some have begun and others not,
    RUNNING; if all are final, one DEAD makes it DEAD. NEW for an empty collection."""
    words = set(statuses)
    if len(words) == 1:
        return words.pop()
    for status in OPEN:
        if status in words:
            return status
    if Status.NEW in words:
        return Status.RUNNING
    return Status.DEAD if Status.DEAD in words else Status.SUCCESS if words else Status.NEW
