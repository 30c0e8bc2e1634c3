"""The latest attempts at a consumer, read from the traces; nothing is stored for it.

Traces are stored by shard and offset, so these are the attempts at the last messages of each shard. Retries of older
messages are not among them, nor attempts on shards beyond MOST_SHARDS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...domain.topic import Consumer, CursorKey, Group, Topic, cursor_key
from ...domain.trace import ATTEMPTS, AttemptOutcome, TraceRow
from ...modes import POLICIES

if TYPE_CHECKING:
    from ...store.traces import Traces


MOST_SHARDS = 16
_FEWEST_ROWS = 10
_FEWEST_ROWS_OF_ALL = 100
_READS = 20  # of one shard
_ENDED = set(ATTEMPTS) - {AttemptOutcome.LAPSED}  # a lapsed one tells no duration of the consumer's


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """One attempt at the message at a place."""

    at_ms: int
    shard: int
    offset: int
    attempt: int
    outcome: str
    duration_ms: int
    detail: str


@dataclass(frozen=True, slots=True)
class History:
    """The newest first. `is_whole`: no older attempts are stored."""

    attempts: Sequence[PastAttempt]
    is_whole: bool

    def percentile_ms(self, percent: int) -> int | None:
        """The duration that this share of the attempts did not exceed (nearest rank); None if none has ended."""
        durations = sorted(each.duration_ms for each in self.attempts if each.outcome in _ENDED)
        return durations[-(-percent * len(durations) // 100) - 1] if durations else None


def latest(
    traces: Traces,
    topic: Topic,
    group: Group,
    consumer: Consumer,
    shards: Sequence[int],
    limit: int,
    may_go_on: Callable[[], bool] = lambda: True,
) -> History:
    """Up to `limit` attempts at a consumer. Its own `shards` are read first, as long as `may_go_on()`: one query per
    shard; more of its own, and of each in a broadcast, where the rows of other consumers lie beside them."""
    in_turn = list(dict.fromkeys([*(s for s in shards if s < topic.shards), *range(topic.shards)]))
    looked_at = in_turn[:MOST_SHARDS]
    rows_each = max(_FEWEST_ROWS, -(-2 * limit // len(looked_at)))
    attempts: list[PastAttempt] = []
    is_whole = len(looked_at) == len(in_turn)
    for shard in looked_at:
        if not may_go_on():
            is_whole = False
            break
        key, is_own = cursor_key(topic, group, shard), shard in shards
        rows, are_all = _own_rows(traces, key, group, consumer, rows_each, is_own, may_go_on)
        is_whole &= are_all
        attempts += (attempt for row in rows for attempt in _attempts(row))
    attempts.sort(key=lambda each: (each.at_ms, each.offset), reverse=True)
    return History(attempts[:limit], is_whole and len(attempts) <= limit)


def _own_rows(
    traces: Traces,
    key: CursorKey,
    group: Group,
    consumer: Consumer,
    most: int,
    is_own: bool,
    may_go_on: Callable[[], bool],
) -> tuple[list[TraceRow], bool]:
    """Up to `most` of the consumer's newest rows on a shard, and whether it has no others."""
    per_consumer = POLICIES[group.mode].per_consumer
    per_read = max(most, _FEWEST_ROWS_OF_ALL) if per_consumer else most
    reads = _READS if per_consumer or is_own else 1
    rows: list[TraceRow] = []
    for count, row in enumerate(traces.newest(key, per_read), 1):
        rows += [row] if _is_of(row, group, consumer) else []
        is_read = count % per_read == 0
        if len(rows) == most or count == reads * per_read or (is_read and not may_go_on()):
            return rows, False
    return rows, True


def _is_of(row: TraceRow, group: Group, consumer: Consumer) -> bool:
    """One that had the name before it was another consumer."""
    if POLICIES[group.mode].per_consumer:
        return row.key.consumer_uid == consumer.uid
    return row.consumer == consumer.name and row.started_ms >= consumer.created_ms


def _attempts(row: TraceRow) -> Iterator[PastAttempt]:
    for attempt in row.entries:
        if attempt.outcome in ATTEMPTS:
            yield PastAttempt(
                row.started_ms,
                row.key.shard.shard,
                attempt.offset,
                attempt.attempt,
                attempt.outcome,
                attempt.duration_ms,
                attempt.detail,
            )
