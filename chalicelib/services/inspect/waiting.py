"""What waits before its log: delayed messages, prepared ones, and by the hour how many messages and retries are due.

Timers of all topics are stored together, by fragment and time; an index by topic would cost one more write per
delayed message. So what reads timers reads past other topics' timers: a limited number of rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from typing import TypeVar

from ...domain.limits import MAX_ANSWER_BYTES
from ...domain.message import Draft, Message
from ...domain.segment import ShardKey
from ...domain.sharding import unit_of
from ...domain.timer import Timer, TimerKind, due_ms_of, sort_key_of
from ...domain.times import HOUR_MS, GoOn, always
from ...domain.topic import Topic, lane_of
from ...domain.transaction import Transaction, TransactionState
from ...store import Timers, Transactions
from ..core.catalog import Catalog
from ..core.log_reader import LogReader
from ..produce.delayed import DelayedMessage
from .lookup import Filters, passes_before_log
from .survey import GroupSurvey

_ROWS = 16  # of a fragment at once: a row may hold 200 KB
_ROUNDS = 8
_MOST_READ = 1_000  # messages of a group that wait, and at least a few of each shard
_FEW = 20
_MOST_WAITERS = 10

# The next timers of all fragments after a position, in order, up to the position that all fragments have been read to
# (None: to the end).
ReadTimers = Callable[[str], tuple[list[Timer], str | None]]

# A state, and where the next page of that state starts (None: at its beginning).
Position = tuple[str, str | None]

_Item = TypeVar("_Item", DelayedMessage, Transaction)
_Counts = Counter[tuple[int, TimerKind]]  # by time


@dataclass(frozen=True, slots=True)
class DueHour:
    """What is due in the hour from `at_ms` on. Retries of SERIAL groups wait in their cursors: they are not here."""

    at_ms: int
    delayed: int
    retries: int


def reader(timers: Timers, *, consistent: bool = True) -> ReadTimers:
    """Reads timers from the store."""
    return partial(_read_page, timers, consistent)


def _read_page(timers: Timers, consistent: bool, position: str) -> tuple[list[Timer], str | None]:
    pages = [timers.behind(each, position, _ROWS, consistent=consistent) for each in timers.fragments()]
    end = min((page[-1].sort_key for page in pages if len(page) == _ROWS), default=None)
    entries = (timer for page in pages for timer in page if end is None or timer.sort_key <= end)
    return sorted(entries, key=lambda timer: timer.sort_key), end


def soonest_first(
    read: ReadTimers,
    topic: Topic,
    filters: Filters,
    key: str | None,
    limit: int,
    after: str | None,
    may_go_on: GoOn = always,
) -> tuple[list[DelayedMessage], str | None]:
    """Up to `limit` delayed messages after the position `after`, and the position of the last one (None: there are no
    more). The filters' times are due times. Reading stops when `may_go_on()` is False."""

    def find(timer: Timer) -> DelayedMessage | None:
        item = DelayedMessage(timer) if _is_delayed(timer, topic) and timer.draft else None
        has_key = item and (key is None or key in item.message.draft.keys)
        return item if item and has_key and passes_before_log(item, filters) else None

    position = after or sort_key_of(max(0, filters.from_ms or 0))
    return _in_order(read, find, limit, position, filters.to_ms, may_go_on)


def prepared_in_order(
    read: ReadTimers,
    transactions: Transactions,
    topic: Topic,
    limit: int,
    after: str | None,
    passes: Callable[[Transaction], bool] = lambda _: True,
) -> tuple[list[Transaction], str | None]:
    """Up to `limit` PREPARED transactions in the order of their next checks, after a position, and the position of the
    last one (None: there are no more). One read for each, beside those of the timers."""

    def find(timer: Timer) -> Transaction | None:
        if timer.kind is not TimerKind.CHECK or timer.shard.topic_uid != topic.uid:
            return None
        found = next(transactions.whole([timer.id]), None)
        is_prepared = found and found.state is TransactionState.PREPARED
        return found if found and is_prepared and passes(found) else None

    return _in_order(read, find, limit, after or sort_key_of(0))


def of_state(
    read: ReadTimers, transactions: Transactions, topic: Topic, state: str, limit: int, after: str | None
) -> tuple[Sequence[Transaction], str | None]:
    """Transactions of a state other than COMMITTED, and the position of the last one (None: there are no more)."""
    if state == TransactionState.PREPARED:
        return prepared_in_order(read, transactions, topic, limit, after)
    rows = transactions.of_state(topic, TransactionState(state), after, limit)
    return rows, rows[-1].sort_key if len(rows) == limit else None


def _in_order(
    read: ReadTimers,
    find: Callable[[Timer], _Item | None],
    limit: int,
    position: str,
    to_ms: int | None = None,
    may_go_on: Callable[[], bool] = lambda: True,
) -> tuple[list[_Item], str | None]:
    """What is found for the timers behind a position, as many as one answer can hold."""
    items: list[_Item] = []
    weight = 0
    for _ in range(_ROUNDS):
        rows, end = read(position)
        for timer in rows:
            if to_ms is not None and timer.due_ms > to_ms:
                return items, None
            if item := find(timer):
                weight += item.message.draft.weight
                if items and weight > MAX_ANSWER_BYTES:
                    return items, position
                items.append(item)
            position = timer.sort_key
            if len(items) == limit:
                return items, position
        if end is None:
            return items, None
        if not may_go_on():
            break
    return items, position


def prepared_and_undecided(
    read: ReadTimers, store: Transactions, topic: Topic, filters: Filters, limit: int, start: Position | None
) -> tuple[Sequence[Transaction], Position | None]:
    """The prepared messages of a topic that the filters ask for, first those that are checked, then the undecided in
    the order of preparation, and where the next page starts (None: the end). The filters' times are times of
    preparation."""
    state, after = start or (TransactionState.PREPARED, None)

    def passes(transaction: Transaction) -> bool:
        return filters.covers(transaction.prepared_ms) and passes_before_log(transaction, filters)

    if state == TransactionState.PREPARED:
        prepared, position = prepared_in_order(read, store, topic, limit, after, passes)
        return prepared, (state, position) if position else (TransactionState.UNDECIDED, None)
    undecided: list[Transaction] = []
    weight = 0
    rows = store.of_state(topic, TransactionState.UNDECIDED, after, limit)
    for found in store.whole(row.id for row in rows):
        # It may have been decided since the list was read.
        if found.state is TransactionState.UNDECIDED and passes(found):
            weight += found.message.draft.weight
            if undecided and weight > MAX_ANSWER_BYTES:
                return undecided, (state, after)
            undecided.append(found)
        after = found.sort_key
    return undecided, (state, rows[-1].sort_key) if len(rows) == limit else None


def lanes_of(catalog: Catalog, topic: Topic, may_use_group: Callable[[str], bool]) -> Set[ShardKey]:
    """The retry lanes of the topic's groups that the caller may use: no retries of others, nor of deleted groups."""
    return {
        lane_of(topic, group, uid).shard_key(0)
        for group in catalog.groups(topic)
        if may_use_group(group.name)
        for uid in catalog.cursor_owners(topic, group)
    }


def due_hours(
    read: ReadTimers, topic: Topic, lanes: Set[ShardKey], from_ms: int, may_go_on: GoOn = always
) -> tuple[list[DueHour], int | None]:
    """The hours with something due, and the time before which they are known (None: all). Retries are those of `lanes`.
    Reading stops when `may_go_on()` is False; else all is read that is due at the first time, however much it is."""
    counts: _Counts = Counter()
    first_ms = None
    rows, position = read(sort_key_of(max(0, from_ms)))
    for number in count(1):
        counts.update((timer.due_ms, timer.kind) for timer in rows if _is_counted(timer, topic, lanes))
        if position is None:
            break
        first_ms, until_ms = first_ms or rows[0].due_ms, due_ms_of(position)
        if (number >= _ROUNDS and until_ms > first_ms) or not may_go_on():
            # The next call goes on at this time. It must not end at the time at which it began.
            until_ms = max(until_ms, first_ms + 1)
            return _by_hour(counts, until_ms), until_ms
        rows, position = read(position)
    return _by_hour(counts), None


@dataclass(frozen=True, slots=True)
class Waiters:
    """Messages of one key, or of one value of another field, that no consumer has: how many of those that were read,
    since when, and for what they wait."""

    value: str | None
    messages: int
    oldest_ms: int
    waits_for: str | None


def next_in_line(log: LogReader, topic: Topic, survey: GroupSurvey) -> list[tuple[Message, bool]]:
    """The messages that a group would claim next, so many of each shard; and whether each waits for an earlier one of
    its key."""
    found: list[tuple[Message, bool]] = []
    most = max(_FEW, _MOST_READ // max(1, len(survey.shards)))
    for progress in survey.shards:
        cursor, key = progress.cursor, progress.key.shard
        held = progress.held_units(survey.at_ms, survey.group.key_concurrency)
        skipped = (offset for span in cursor.waiting if span.attempt == 1 for offset in span.offsets())
        slots = [*log.fetch(key, islice(skipped, most), log.recent()).values()]
        slots += log.slots_from(key, cursor.next, cursor.segment_at, most - len(slots), log.recent())
        messages = (slot.message for slot in slots if slot.message)
        wanted = (each for each in messages if survey.group.wants(each.draft) and not each.draft.cancelled)
        found += ((each, unit_of(each.draft.ordering_key, each.draft.tenant) in held) for each in wanted)
    return found


def who_waits(
    found: Sequence[tuple[Message, bool]], value_of: Callable[[Draft], str | None], limits: Sequence[str]
) -> list[Waiters]:
    """Of the messages next in line, the values of a field (`value_of`) that most have. `limits`: the group's."""
    by_value: dict[str | None, list[tuple[int, bool]]] = {}
    for message, is_held in found:
        by_value.setdefault(value_of(message.draft), []).append((message.accepted_ms, is_held))
    limit = next(iter(limits), None)
    waiters = [
        Waiters(value, len(each), min(each)[0], "keys" if all(is_held for _, is_held in each) else limit)
        for value, each in by_value.items()
    ]
    return sorted(waiters, key=lambda each: (-each.messages, each.oldest_ms))[:_MOST_WAITERS]


def _is_delayed(timer: Timer, topic: Topic) -> bool:
    """Does the timer hold a delayed message of the topic?"""
    return timer.kind is TimerKind.DELIVER and timer.shard.topic_uid == topic.uid


def _is_counted(timer: Timer, topic: Topic, lanes: Set[ShardKey]) -> bool:
    return _is_delayed(timer, topic) or (timer.kind is TimerKind.RETRY and timer.shard in lanes)


def _by_hour(counts: _Counts, end_ms: int | None = None) -> list[DueHour]:
    """The hours of what is due before the end."""
    hours: _Counts = Counter()
    for (due_ms, kind), number in counts.items():
        if end_ms is None or due_ms < end_ms:
            hours[due_ms // HOUR_MS * HOUR_MS, kind] += number
    times = sorted({at_ms for at_ms, _ in hours})
    return [DueHour(ms, hours[ms, TimerKind.DELIVER], hours[ms, TimerKind.RETRY]) for ms in times]
