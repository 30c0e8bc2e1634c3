"""Finds messages: one by id, with its status per group; lists with filters."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import islice, takewhile
from typing import NamedTuple

from ...domain import ids
from ...domain.errors import NotFound
from ...domain.limits import MAX_ANSWER_BYTES, RETENTION_GRACE, SHARD_NUMBERS, TAIL_SURE
from ...domain.message import DeadReason, Draft, Message
from ...domain.record import DeadLetter
from ...domain.segment import ShardKey
from ...domain.status import OPEN, OVER, Status
from ...domain.times import CLOCKS_DIFFER_MS, GoOn, always
from ...domain.topic import Group, Topic
from ...domain.transaction import Transaction, TransactionState
from ...ports.world import Clock
from ...store import Log, Records
from ..core.catalog import Catalog
from ..core.log_reader import Freshness, LogReader
from ..produce.dedup import FirstUse
from ..produce.delayed import Delayed, DelayedMessage
from .statuses import Statuses, TopicStatuses

MOST_LISTING_MS = 8_000  # API Gateway ends a request after 29 s, and a row may hold a thousand messages

_ROWS = 16
_GRACE_MS = RETENTION_GRACE // timedelta(milliseconds=1)
_TAIL_SURE_MS = TAIL_SURE // timedelta(milliseconds=1)
_UNDONE = (*OPEN, Status.NEW, Status.DEAD)
_ROWS_PER_PAGE = 512  # what one page of a list reads at most; a sparse filter goes on with the next page
_GROUPS = 32  # in which a dead letter is looked for
_LETTERS = 4  # of each of them
_AS_PRODUCED = 2


# A message before its log: delayed, or prepared in a transaction (or cancelled there).
BeforeLog = DelayedMessage | Transaction

AnyMessage = Message | BeforeLog  # a message in its log, or before it


class MessageState(NamedTuple):
    """A message's status over all groups, and the message; None if it is not shown any more. `use`: what that says of
    its dedup id."""

    status: str
    message: AnyMessage | None = None
    use: FirstUse = FirstUse.OPEN


@dataclass(kw_only=True, frozen=True, slots=True)
class Lookup:
    """Reads only; nothing here changes anything."""

    catalog: Catalog
    log: Log
    records: Records
    reader: LogReader
    delayed: Delayed
    statuses: Statuses
    clock: Clock

    def find(self, topic: Topic, message_id: str) -> AnyMessage:
        """The message with this id, in the log, delayed or prepared. Raises NotFound."""
        message = self.delayed.find(topic, message_id)
        if isinstance(message, Message):
            return self._require_shown(topic, message)
        return message or self.message(topic, message_id)

    def find_with_dead_letters(
        self, topic: Topic, message_id: str, may_use_group: Callable[[str], bool], may_go_on: GoOn = always
    ) -> AnyMessage:
        """As `find`; it also finds a message of which only a dead letter is left, as `in_dead_letters` does."""
        try:
            return self.find(topic, message_id)
        except NotFound:
            if message := self.in_dead_letters(topic, message_id, may_use_group, may_go_on):
                return message
            raise

    def in_dead_letters(
        self, topic: Topic, message_id: str, may_use_group: Callable[[str], bool], may_go_on: GoOn = always
    ) -> Message | None:
        """A message whose row is gone, as a dead letter has it; best as it was produced. None for one that was
        delayed: its id does not say where it was.

        Only letters of groups that the caller may use are read, of the first 32 of them: a read for each group and for
        each letter, up to four of a broadcast's consumers. Reading stops when `may_go_on()` is False. Where the row
        cannot have expired, this costs one read."""
        location = ids.parse_message_id(message_id)
        if location is None or location[1] >= SHARD_NUMBERS:  # `topic` may be of before it grew
            return None
        _, shard, offset = location
        if not self._may_have_expired(topic.shard_key(shard), offset, message_id):
            return None
        groups = (group for group in self.catalog.groups(topic) if may_use_group(group.name))
        letters = (
            letter
            for group in takewhile(lambda _: may_go_on(), islice(groups, _GROUPS))
            for letter in self.records.letters_at(group.uid, topic.shard_key(shard), offset, _LETTERS)
        )
        matches: list[DeadLetter] = []
        for letter in letters:
            matches += [letter] if letter.message.id == message_id else []
            if (matches and _worth(matches[-1]) == _AS_PRODUCED) or not may_go_on():
                break
        return max(matches, key=_worth).message if matches else None

    def _may_have_expired(self, shard: ShardKey, offset: int, message_id: str) -> bool:
        """May the message's row be over? No, if another message is in its place, or if the row before it is so young
        that none behind it can have expired: there the log ends, or has a hole."""
        row = self.reader.last_row(shard, offset, self.reader.recent())
        if row is None:
            return True
        if row.end <= offset:
            return row.accepted_ms <= self.clock.now_ms() - _TAIL_SURE_MS
        there = row.message(shard.shard, offset)
        return there is None or there.id == message_id or there.draft.dead_reason == DeadReason.UNDECODABLE

    def find_by_dedup_id(self, topic: Topic, dedup_id: str, *, consistent: bool = True) -> AnyMessage | None:
        """The message stored under this dedup id, while the id is remembered. One read more than `find`."""
        entry = self.log.dedup_entry(topic.uid, dedup_id, consistent=consistent)
        if entry is None or entry.ends_ms <= self.clock.now_ms():
            return None
        try:
            return self.find(topic, entry.message_id)
        except NotFound:
            return None

    def message(self, topic: Topic, message_id: str) -> Message:
        """The message with this id in the log. Raises NotFound. One read; more if it was delayed."""
        message = self._find_by_place(topic, message_id)
        if message is None and ids.parse_message_id(message_id) is None:
            found_message = self.delayed.find(topic, message_id)
            message = found_message if isinstance(found_message, Message) else None
        return self._require_shown(topic, message)

    def _require_shown(self, topic: Topic, message: Message | None) -> Message:
        """The message. Raises NotFound where there is none, or it is shown no more."""
        if message and self._is_shown(topic, message):
            return message
        text = f"Topic {topic.name!r} has no message with this id; it may have expired."
        raise NotFound("MESSAGE_NOT_FOUND", text)

    def _is_shown(self, topic: Topic, message: Message) -> bool:
        """Is the message still shown? Yes until its retention is over; then, until its row expires, only while a group
        has not settled it or has it as a dead letter. It does not matter when TTL deletes the row."""
        now_ms = self.clock.now_ms()

        def keeps(topic: Topic) -> bool:
            return now_ms < topic.keeps_until_ms(message)

        if keeps(topic) or keeps(self.catalog.topic_for(topic.name, keeps)):
            return True
        if now_ms >= message.ends_ms + _GRACE_MS:
            return False
        deliveries = self.statuses.of_topic(topic).deliveries(message).values()
        return any(delivery.status in _UNDONE for delivery in deliveries)

    def _find_by_place(self, topic: Topic, message_id: str, trust: Freshness | None = None) -> Message | None:
        """The message at the shard and offset in its id."""
        location = ids.parse_message_id(message_id)
        if location is None or location[1] >= SHARD_NUMBERS:  # `topic` may be of before it grew
            return None
        _, shard, offset = location
        trust = trust or self.reader.recent()
        slot = self.reader.fetch(topic.shard_key(shard), [offset], trust)[offset]
        return slot.message if slot.message and slot.message.id == message_id else None

    def state_by_id(self, topic: Topic) -> Callable[[str], MessageState]:
        """Returns a function from a message id to its present state, as produce shows it of a duplicate; NEW if the
        message has expired. Groups, cursors and rows are read once for all ids. It raises ChangedMeanwhile."""
        topic_statuses, fresh = self.statuses.of_topic(topic), self.reader.now()

        def state_of(message_id: str) -> MessageState:
            row_message = self._find_by_place(topic, message_id, fresh)  # it may be cancelled since a moment
            if row_message and row_message.draft.cancelled:
                return MessageState(Status.CANCELLED, row_message, FirstUse.CANCELLED)
            try:
                message = self.find_with_dead_letters(topic, message_id, lambda _: True)
            except NotFound:
                return MessageState(Status.NEW)
            if isinstance(message, Message):
                statuses = [each.status for each in topic_statuses.deliveries(message).values()]
                return MessageState(topic_statuses.overall(message), message, _use_of(statuses))
            status = status_before_log(message)
            use = FirstUse.CANCELLED if status == Status.CANCELLED else FirstUse.OPEN
            return MessageState(status, message, use)

        return state_of

    def newest_first(
        self,
        topic: Topic,
        filters: Filters,
        limit: int,
        starts: dict[int, int] | None,
        topic_statuses: TopicStatuses | None = None,
        may_go_on: GoOn = always,
    ) -> tuple[list[Message], dict[int, int] | None]:
        """Up to `limit` messages, newest first, and where the next page starts in each shard (None: the end). Pass
        `topic_statuses` to see their statuses at the same moment. Reading stops after eight seconds, and when
        `may_go_on()` is False."""
        topic_statuses = topic_statuses or self.statuses.of_topic(topic)
        ends_ms = self.clock.now_ms() + MOST_LISTING_MS
        shards = [filters.shard] if filters.shard is not None else list(topic.shard_numbers)
        if starts is None:
            starts = {shard: self.log.tail(topic.shard_key(shard)).offset for shard in shards}
        next_offsets = {shard: start for shard, start in starts.items() if start >= 0}
        budget = _Budget(_ROWS_PER_PAGE, may_go_on)
        walk = partial(self._walk, topic, filters, budget, next_offsets)
        walks = [walk(shard, start) for shard, start in next_offsets.copy().items()]
        messages: list[Message] = []
        weight = 0
        for message in heapq.merge(*walks, key=lambda m: (-m.accepted_ms, -m.offset)):
            passes = filters.covers(message.accepted_ms) and filters.passes(
                message.shard, message.draft, partial(topic_statuses.status, message)
            )
            weight += message.draft.weight if passes else 0
            if messages and weight > MAX_ANSWER_BYTES:
                break
            next_offsets[message.shard] = message.offset - 1
            if passes:
                messages.append(message)
            if len(messages) == limit or budget.spent or self.clock.now_ms() >= ends_ms:
                break
        rest = {shard: start for shard, start in next_offsets.items() if start >= 0}
        return messages, rest or None

    def _walk(
        self, topic: Topic, filters: Filters, budget: _Budget, starts: dict[int, int], shard: int, start: int
    ) -> Iterator[Message]:
        """Messages of one shard from `start` back to the filter's `from`, or to where retention has ended; marks the
        shard's end in `starts`."""
        key, now_ms = topic.shard_key(shard), self.clock.now_ms()
        # Rows are in the order of their offsets: of their times only as far as their writers' clocks agree.
        from_ms = max(filters.from_ms or 0, now_ms - topic.retention_ms + 1) - CLOCKS_DIFFER_MS
        at = start
        count = 1  # the walks of all shards must have begun before the budget is spent
        while at >= 0 and not budget.spent:
            rows = self.log.list_back(key, at, count)
            budget.take(len(rows))
            count = min(_ROWS, count * 4)
            for row in rows:
                if row.accepted_ms < from_ms:
                    rows = []
                    break
                if now_ms < topic.keeps_until_ms(row):
                    offsets = range(min(row.end - 1, at), row.first - 1, -1)
                    yield from filter(None, (row.message(shard, offset) for offset in offsets))
                at = row.first - 1
                # a tombstone yields nothing, and yet is behind us
                starts[shard] = min(starts[shard], at)
            if not rows:
                starts[shard] = -1
                return


@dataclass(slots=True)
class _Budget:
    """How many rows a page may still read."""

    left: int
    may_go_on: GoOn

    def take(self, rows: int) -> None:
        self.left -= rows

    @property
    def spent(self) -> bool:
        return self.left <= 0 or not self.may_go_on()


def status_before_log(message: BeforeLog) -> str:
    """The status of a message before its log."""
    if isinstance(message, Transaction):
        return "CANCELLED" if message.state is TransactionState.ROLLED_BACK else "PREPARED"
    return "CANCELLED" if message.cancelled else "DELAYED"


def passes_before_log(message: BeforeLog, filters: Filters) -> bool:
    """Is the message before its log in the list, its time aside? No group is owed it yet."""
    status = status_before_log(message)
    return filters.passes(message.shard, message.message.draft, lambda group: None if group else status)


def _use_of(statuses: Sequence[Status]) -> FirstUse:
    """What a message's statuses for its groups say of its dedup id. Without a group it waits for one."""
    if Status.DEAD in statuses:
        return FirstUse.DEAD
    return FirstUse.ENDED if statuses and all(status in OVER for status in statuses) else FirstUse.OPEN


def _worth(letter: DeadLetter) -> int:
    """How well a dead letter shows its message: as it was produced, edited, or unreadable (0)."""
    if letter.edited:
        return 1
    return 0 if letter.message.draft.dead_reason == DeadReason.UNDECODABLE else _AS_PRODUCED


@dataclass(frozen=True, slots=True)
class Filters:
    """What a list of messages is limited to. `status` is that of the named group, or without a group that over all
    groups.

    `from_ms` and `to_ms` bound the time that a list is sorted by: of a message in its log, when it came there; of a
    delayed one, when it is due; of a prepared one, when it was prepared. Each list applies these two where it reads:
    `Lookup` while it walks the log, `KeyLookup` in the index, `delayed_list` by the order of timers, `prepared_list`
    by `covers`. All others are applied by `passes`."""

    group: Group | None = None
    status: str | None = None
    tag: str | None = None
    shard: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    job_prefix: str | None = None
    tenant: str | None = None

    def passes(self, shard: int | None, draft: Draft, look: Callable[[Group | None], str | None]) -> bool:
        """Is the message of this shard in the list, its time aside? `look` gives its status for a group, or over all
        groups (None); it returns None where the group is not owed it, and is called only if it matters."""
        if self.shard not in (None, shard) or self.tag not in (None, draft.tag):
            return False
        if self.tenant not in (None, draft.tenant):
            return False
        if self.job_prefix is not None and not (draft.job and draft.job.startswith(self.job_prefix)):
            return False
        if self.group is None and self.status is None:
            return True
        status = look(self.group)
        return status is not None and self.status in (None, status)

    def covers(self, time_ms: int) -> bool:
        """Is this time within the bounds?"""
        return (self.from_ms or 0) <= time_ms and (self.to_ms is None or time_ms <= self.to_ms)
