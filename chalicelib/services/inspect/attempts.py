"""The latest attempts at a consumer, read from the traces; nothing is stored for it.

Traces are stored by shard and offset, so these are the attempts at the last messages of each shard. Retries of older
messages are not among them, nor attempts on shards beyond MOST_SHARDS.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product

from ...domain.topic import Consumer, Group, Topic, cursor_key
from ...domain.trace import ATTEMPTS, AttemptOutcome, TraceRow
from ...modes import POLICIES
from ...ports.indexes import Traces

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
    """Up to `limit` attempts at a consumer, as long as `may_go_on()`: one read of each shard, its own `shards` first,
    and more in turn where its rows are few, since those of all consumers lie side by side."""
    in_turn = list(dict.fromkeys([*(s for s in shards if s < topic.shards), *range(topic.shards)]))
    looked_at = in_turn[:MOST_SHARDS]
    enough_of_one = max(_FEWEST_ROWS, -(-2 * limit // len(looked_at)))
    is_broadcast = POLICIES[group.mode].per_consumer
    per_read = max(enough_of_one, _FEWEST_ROWS_OF_ALL) if is_broadcast else enough_of_one
    unread = {shard: traces.newest(cursor_key(topic, group, shard), per_read) for shard in looked_at}
    attempts: list[PastAttempt] = []
    for turn, shard in product(range(_READS), looked_at):
        if shard not in unread:
            continue
        counts = Counter(each.shard for each in attempts)
        # Who has so many on one shard has it alone, and few on the others'.
        is_enough = counts.total() > limit or max(counts.values(), default=0) >= enough_of_one
        if (turn and is_enough) or not may_go_on():
            break
        rows = list(islice(unread[shard], per_read))
        attempts += (each for row in rows if row and _is_of(row, group, consumer) for each in _attempts(row))
        if len(rows) < per_read:
            del unread[shard]
    attempts.sort(key=lambda each: (each.at_ms, each.offset), reverse=True)
    is_whole = not unread and len(looked_at) == len(in_turn)
    return History(attempts[:limit], is_whole and len(attempts) <= limit)


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
