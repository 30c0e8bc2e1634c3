"""The latest attempts at a consumer, or of a group: how they ended, and how long they took."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter

from ...domain.call_result import Answer, in_words
from ...domain.times import GoOn, always
from ...domain.topic import Consumer, CursorKey, Group, Topic, cursor_key
from ...domain.trace import ATTEMPTS, AttemptOutcome, TraceEntry, TraceRow
from ...modes import POLICIES
from ...store import Traces

MOST_SHARDS = 16
_FEWEST_ROWS = 10
_FEWEST_ROWS_OF_ALL = 100
_READS = 20  # of one shard
_ROWS_OF_GROUP = 20  # of one shard
_MOST_OF_GROUP = 500
_ENDED = set(ATTEMPTS) - {AttemptOutcome.LAPSED}  # a lapsed one has no duration of the consumer's


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """One attempt at the message at a place, by the consumer of this name (empty: one without)."""

    at_ms: int
    consumer: str
    shard: int
    offset: int
    attempt: int
    outcome: str
    duration_ms: int
    detail: str
    answer: Answer | None

    @property
    def failure(self) -> str | None:
        """What went wrong, in words."""
        return in_words(self.detail or None, self.answer)


@dataclass(frozen=True, slots=True)
class History:
    """The latest attempts at a consumer, or of a group, the newest first. `is_whole`: there are no older ones (of the
    time that was asked for)."""

    attempts: Sequence[PastAttempt]
    is_whole: bool

    @property
    def success_rate(self) -> float | None:
        """The share of the attempts that succeeded; None if there is none."""
        successes = sum(each.outcome == AttemptOutcome.SUCCESS for each in self.attempts)
        return successes / len(self.attempts) if self.attempts else None

    def last_failed(self, consumer: str | None = None) -> PastAttempt | None:
        """The newest attempt that failed, of any consumer or of one."""
        failed = (each for each in self.attempts if each.outcome != AttemptOutcome.SUCCESS)
        return next((each for each in failed if consumer in (None, each.consumer)), None)

    def percentile_ms(self, percent: int) -> int | None:
        """The duration that this share of the attempts did not exceed (nearest rank); None if none has ended."""
        durations = sorted(each.duration_ms for each in self.attempts if each.outcome in _ENDED)
        return durations[-(-percent * len(durations) // 100) - 1] if durations else None


def latest_attempts(
    traces: Traces,
    topic: Topic,
    group: Group,
    consumer: Consumer,
    shards: Sequence[int],
    limit: int,
    may_go_on: GoOn = always,
) -> History:
    """Up to `limit` attempts at a consumer, from the traces: those at the last messages of each shard. Retries of older
    messages are not among them, nor what is on shards beyond MOST_SHARDS. Its own `shards` are read first, as long as
    `may_go_on()`: one query per shard; more of its own, and of each in a broadcast, where the rows of other consumers
    lie beside them."""
    in_turn = list(dict.fromkeys([*(s for s in shards if s in topic.shard_numbers), *topic.shard_numbers]))
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
        attempts += _attempts_of(rows)
    return _newest(attempts, limit, is_whole)


def attempts_since(traces: Traces, topic: Topic, group: Group, since_ms: int, may_go_on: GoOn) -> History:
    """The group's attempts since a moment, from the traces: those at the last messages of each shard, one query for
    each of up to MOST_SHARDS shards, as long as `may_go_on()`. Retries of older messages are not among them."""
    attempts: list[PastAttempt] = []
    is_whole = len(topic.shard_numbers) <= MOST_SHARDS
    for shard in topic.shard_numbers[:MOST_SHARDS]:
        if shard and not may_go_on():
            is_whole = False
            break
        newest = traces.newest(cursor_key(topic, group, shard), _ROWS_OF_GROUP)
        rows = [row for row in islice(newest, _ROWS_OF_GROUP) if row.started_ms >= since_ms]
        is_whole &= len(rows) < _ROWS_OF_GROUP
        attempts += _attempts_of(rows)
    return _newest(attempts, _MOST_OF_GROUP, is_whole)


def together(histories: Iterable[History | None]) -> History | None:
    """Several histories as one, of those that are known; None: none is."""
    known = [each for each in histories if each]
    attempts = [attempt for each in known for attempt in each.attempts]
    return _newest(attempts, len(attempts), all(each.is_whole for each in known)) if known else None


def _attempts_of(rows: Iterable[TraceRow]) -> Iterator[PastAttempt]:
    for row in rows:
        for entry in row.entries:
            if entry.outcome in ATTEMPTS:
                fields = attrgetter(*TraceEntry.__slots__)(entry)
                yield PastAttempt(row.started_ms, row.consumer, row.key.shard.shard, *fields)


def _newest(attempts: list[PastAttempt], most: int, is_whole: bool) -> History:
    attempts.sort(key=lambda each: (each.at_ms, each.offset), reverse=True)
    return History(attempts[:most], is_whole and len(attempts) <= most)


def _own_rows(
    traces: Traces, key: CursorKey, group: Group, consumer: Consumer, most: int, is_own: bool, may_go_on: GoOn
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
