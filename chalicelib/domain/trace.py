"""Traces: one row for each settled batch of attempts. A message's path is put together from them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .call_result import Answer
from .topic import CursorKey


class AttemptOutcome(StrEnum):
    """The result of an attempt (one of ATTEMPTS), a person's operation on the delivery or its dead letter, or the
    burial that a redrive ended."""

    SUCCESS = "SUCCESS"
    RETRY = "RETRY"
    DEAD = "DEAD"
    LAPSED = "LAPSED"  # its lease ended before it was settled
    BURIED = "BURIED"  # noted by its redrive, which replaces the record: no attempt need have ended with it
    REDRIVEN = "REDRIVEN"
    EDITED = "EDITED"
    DELETED = "DELETED"
    RETRIED = "RETRIED"  # a waiting delivery became due at once
    SETTLED = "SETTLED"  # by hand
    SOUGHT = "SOUGHT"  # the group was moved to this offset


# The results of attempts: what the API shows as an `outcome`.
ATTEMPTS = (AttemptOutcome.SUCCESS, AttemptOutcome.RETRY, AttemptOutcome.DEAD, AttemptOutcome.LAPSED)

# Of these the journal and the archive have no line: they are no attempts. (A redrive begins the delivery again.) The
# archive has the same list in glue_jobs/archiving/trace_rows.py; a test compares both.
NOT_ARCHIVED = frozenset(AttemptOutcome) - {*ATTEMPTS, AttemptOutcome.REDRIVEN}


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """One attempt at one offset, an operation on its dead letter, or the burial before a redrive.

    `outcome` is an AttemptOutcome, or one that only a later release knows, which readers leave out. `detail` of an
    attempt: what went wrong (empty for SUCCESS); of an operation: the id of the token that did it, and of SETTLED the
    outcome and the reason behind it; of a burial: the dead letter's reason, and `duration_ms` how long before the
    redrive it was. Traces, journal, archive and reports show it. `answer`, a
    subscriber's, is in traces only.
    """

    offset: int
    attempt: int
    outcome: str
    duration_ms: int = 0
    detail: str = ""
    answer: Answer | None = None


@dataclass(frozen=True, slots=True)
class TraceRow:
    """Attempts that were settled together: by which consumer (the lease's owner), its rank and the number of consumers,
    and when. `started_ms` is when they began; of LAPSED ones, when their lease ended; of an admin's action (with the
    burial before it), when it was done.

    `key` names the topic's shard (never a retry lane) and the group, `group` its name; offsets are in rising order.
    `id` distinguishes rows that begin at the same offset: it is the lease's token if the row ends attempts of that
    lease (its trace then no longer shows the lease, and a repeated ack is recognised by it); otherwise an id of its
    own.
    """

    key: CursorKey
    id: str
    consumer: str
    rank: int | None
    total: int
    started_ms: int
    entries: tuple[TraceEntry, ...]
    expires_s: int
    group: str = ""
