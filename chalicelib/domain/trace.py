"""Traces: one row for each settled batch of attempts. A message's path is put together from them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .topic import CursorKey


class AttemptOutcome(StrEnum):
    """The result of an attempt, or an operation on its dead letter."""

    SUCCESS = "SUCCESS"
    RETRY = "RETRY"
    DEAD = "DEAD"
    LAPSED = "LAPSED"  # its lease ended before it was settled
    REDRIVEN = "REDRIVEN"
    EDITED = "EDITED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Tried:
    """One attempt at one offset, or an operation on its dead letter; then `detail` is the id of the token that did it.
    `outcome` is an AttemptOutcome, or one that only a later release knows.
    """

    offset: int
    attempt: int
    outcome: str
    duration_ms: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class TraceRow:
    """Attempts that were settled together: by which consumer, its rank and the number of consumers, and when they
    started.

    `key` names the topic's shard (never a retry lane) and the group, `group` its name; offsets are in rising order.
    `id` tells rows apart that begin at the same offset.
    """

    key: CursorKey
    id: str
    consumer: str
    rank: int | None
    total: int
    started_ms: int
    tried: tuple[Tried, ...]
    expires_s: int
    group: str = ""
