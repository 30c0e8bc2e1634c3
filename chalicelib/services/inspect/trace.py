"""A message's history: from the message itself, from the traces of its attempts, and from the leases it is under; and
the latest attempts at a consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from ...domain import ids
from ...domain.call_result import Answer, in_words
from ...domain.errors import Unavailable
from ...domain.message import DeadReason, Draft, Message
from ...domain.replay import REPLAY_HEADER, REPLAY_OF_HEADER
from ...domain.status import Status
from ...domain.topic import Consumer, CursorKey, Group, Topic, cursor_key
from ...domain.trace import ATTEMPTS, AttemptOutcome, TraceEntry, TraceRow
from ...domain.transaction import Transaction
from ...modes import POLICIES
from ...ports.world import Clock
from ..core.catalog import Catalog
from ..produce.delayed import DelayedMessage
from .statuses import OpenLease, Statuses, TopicStatuses

if TYPE_CHECKING:
    from ...store.traces import Traces
    from ...store.transactions import Transactions


MOST_SHARDS = 16
_FEWEST_ROWS = 10
_FEWEST_ROWS_OF_ALL = 100
_READS = 20  # of one shard
_ROWS_OF_GROUP = 20  # of one shard
_MOST_OF_GROUP = 500
_ENDED = set(ATTEMPTS) - {AttemptOutcome.LAPSED}  # a lapsed one has no duration of the consumer's

_BY_HAND = set(AttemptOutcome) - {*ATTEMPTS, AttemptOutcome.BURIED}  # a person's operations

_WITHOUT_ATTEMPT = (DeadReason.EXPIRED, DeadReason.RATE_LIMITED, DeadReason.UNDECODABLE)


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a message: prepared, accepted, delayed, postponed, edited, cancelled, due (it came
    into its log), leased (it is, at this moment), delivered (an attempt), buried, redriven, deleted (its dead letter),
    retried (it became due at once), settled (by hand), sought (the group was moved here).

    `shard` is None before it has one. `by` is the id of the token that did it, None if no token did or it is not
    known. `owner` holds the lease until `deadline_ms`. `deliver_ms` is the time it was to wait for.
    """

    at_ms: int
    event: str
    shard: int | None = None
    group: str | None = None
    consumer: str | None = None
    attempt: int | None = None
    rank: int | None = None
    total: int | None = None
    duration_ms: int | None = None
    outcome: str | None = None
    detail: str | None = None
    answer: Answer | None = None
    app: str = ""
    address: str = ""
    by: str | None = None
    owner: str | None = None
    deadline_ms: int | None = None
    deliver_ms: int | None = None


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

    @property
    def last_failed(self) -> PastAttempt | None:
        """The newest attempt that failed."""
        return next((each for each in self.attempts if each.outcome != AttemptOutcome.SUCCESS), None)

    def percentile_ms(self, percent: int) -> int | None:
        """The duration that this share of the attempts did not exceed (nearest rank); None if none has ended."""
        durations = sorted(each.duration_ms for each in self.attempts if each.outcome in _ENDED)
        return durations[-(-percent * len(durations) // 100) - 1] if durations else None


class _Burial(NamedTuple):
    """A delivery that became a dead letter: from its record, or as its redrive noted it."""

    consumer_uid: str
    at_ms: int
    attempts: int
    reason: str


class Tracer:
    """Reads traces; nothing here changes anything."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        traces: Traces,
        transactions: Transactions,
        statuses: Statuses,
        clock: Clock,
    ) -> None:
        self._catalog = catalog
        self._traces = traces
        self._transactions = transactions
        self._statuses = statuses
        self._clock = clock

    def path(
        self,
        topic: Topic,
        message: Message,
        only: Sequence[Group] | None = None,
        seen: TopicStatuses | None = None,
    ) -> list[Event]:
        """All events of the message, in order of time. Servers' clocks differ, so no event is shown before the
        message's entry into the log. Pass the statuses that were `seen` just now."""
        seen = seen or self._statuses.of_topic(topic)
        entry = _with_producer(message, _entry(message, self._transaction(message)))
        events = [replace(e, shard=message.shard) for e in entry]
        for group in self._catalog.groups(topic) if only is None else only:
            for e in self._of_group(seen, group, message):
                at_ms = max(e.at_ms, message.accepted_ms)
                events.append(replace(e, at_ms=at_ms, shard=message.shard, group=group.name))
        return sorted(events, key=lambda e: e.at_ms)

    def path_before_log(self, before: DelayedMessage | Transaction) -> list[Event]:
        """The events of a delayed or prepared message."""
        message = before.message
        if isinstance(before, DelayedMessage):
            events = _beginning_events(message, before.timer.due_ms, self._transaction(message))
        else:
            events = [Event(before.prepared_ms, "prepared", by=message.by or None)]
        return [*_with_producer(message, events), *_act_events(message.draft)]

    def _transaction(self, message: Message) -> Transaction | None:
        """The transaction that the message was prepared in; None if there was none, or its row is gone or unreadable:
        it says when the message was committed and by whom, and the trace does without."""
        id = ids.parse_half_id(message.id)
        if id is None:
            return None
        try:
            return self._transactions.get(id)
        except Unavailable:
            return None

    def _of_group(self, seen: TopicStatuses, group: Group, message: Message) -> Iterator[Event]:
        """The group's events, without its name and the shard."""
        topic = seen.topic
        key = cursor_key(topic, group, message.shard)
        names = self._catalog.consumer_names(topic, group)
        # The leases first: an attempt that is settled or noted between the two reads is in both, and not in neither.
        leases = list(seen.open_leases(group, message))
        rows = self._traces.rows_covering(key, message.offset)
        entries = [(row, entry) for row in rows for entry in row.entries if entry.offset == message.offset]
        burials = list(self._burials_recorded(seen, group, message))
        for row, entry in entries:
            uid = row.key.consumer_uid
            yield from _events(row, entry, names.get(uid))
            if entry.outcome == AttemptOutcome.BURIED:
                burials.append(_Burial(uid, row.started_ms - entry.duration_ms, entry.attempt, entry.detail))
        dead_entries = ((row, entry) for row, entry in entries if entry.outcome == AttemptOutcome.DEAD)
        dead_attempts = {(row.key.consumer_uid, entry.attempt) for row, entry in dead_entries}
        for uid, at_ms, attempts, reason in burials:
            # One that ended an attempt (REJECTED, ATTEMPTS_EXHAUSTED) is shown with it.
            if reason in _WITHOUT_ATTEMPT or (uid, attempts) not in dead_attempts:
                yield _burial(at_ms, names.get(uid), attempts or None, reason)
        ended_tokens = {(row.key.consumer_uid, row.id) for row in rows}
        usual_ms = (group.lease_seconds or topic.lease_seconds) * 1000
        for each in leases:
            if (each.consumer_uid, each.lease.token) not in ended_tokens:
                yield self._lease_event(each, usual_ms, names)

    def _lease_event(self, of: OpenLease, usual_ms: int, names: Mapping[str, str]) -> Event:
        """The attempt under way, or the one whose lease ran out, as the next claim will note it but for the consumer's
        rank. When a lease began is reckoned from its end and the group's `lease_seconds`."""
        lease, owner = of.lease, names.get(of.lease.owner)
        if of.has_lapsed:
            return Event(
                lease.deadline_ms,
                "delivered",
                consumer=owner,
                attempt=of.attempt,
                duration_ms=0,
                outcome=AttemptOutcome.LAPSED,
            )
        return Event(
            min(self._clock.now_ms(), lease.deadline_ms - usual_ms),
            "leased",
            consumer=names.get(of.consumer_uid or lease.owner),
            attempt=of.attempt,
            owner=owner,
            deadline_ms=lease.deadline_ms,
        )

    def _burials_recorded(self, seen: TopicStatuses, group: Group, message: Message) -> Iterator[_Burial]:
        """The burials that no redrive has ended. What was buried without an attempt (it expired, or its leases ran out)
        shows in its record only."""
        for key in self._catalog.cursor_keys(seen.topic, group, message.shard):
            record = seen.records.get(key, message.offset)
            if record and record.status == Status.DEAD:
                yield _Burial(key.consumer_uid, record.at_ms, record.attempts, record.reason or "")


def _entry(message: Message, transaction: Transaction | None) -> list[Event]:
    """How the message came into its log, and what was done to it before the first claim. `transaction` is the one it
    was prepared in, if that is known."""
    headers, draft = message.draft.headers, message.draft
    replay_id = headers.get(REPLAY_HEADER)
    replay_note = f"replay {replay_id} of {headers.get(REPLAY_OF_HEADER)}" if replay_id is not None else None
    accepted_event = Event(message.accepted_ms, "accepted", detail=replay_note, by=message.by or None)
    events = [accepted_event]
    if draft.accepted_ms is not None and draft.due_ms is not None:
        beginning_events = _beginning_events(message, draft.due_ms, transaction)
        events = [*beginning_events, Event(message.accepted_ms, "due")]
    elif draft.accepted_ms is not None:
        event = Event(draft.accepted_ms, "prepared", by=message.by or None)
        by = transaction.committed_by if transaction else ""
        events = [event, replace(accepted_event, by=by or None)]
    return events + _act_events(draft)


def _with_producer(message: Message, events: Sequence[Event]) -> list[Event]:
    """The events, the first with the producer's app and address."""
    return [replace(events[0], app=message.app, address=message.address), *events[1:]]


def _beginning_events(message: Message, due_ms: int, transaction: Transaction | None) -> list[Event]:
    """The events of a delayed message's beginning. `due_ms` is when it is due in the end; where its transaction is not
    known, neither is when it was committed."""
    at_ms, by = message.first_accepted_ms, message.by or None
    if timer_id := ids.parse_timed_id(message.id):
        accepted_event = Event(at_ms, "accepted", by=by)
        return [accepted_event, replace(accepted_event, event="delayed", deliver_ms=timer_id.due_ms)]
    prepared_event = Event(at_ms, "prepared", by=by)
    if transaction is None or transaction.decided_ms is None:
        return [prepared_event, replace(prepared_event, event="delayed", deliver_ms=due_ms)]
    committer = transaction.committed_by or None
    accepted_event = Event(transaction.decided_ms, "accepted", by=committer)
    first_ms = due_ms if transaction.due_ms is None else transaction.due_ms
    return [prepared_event, accepted_event, replace(accepted_event, event="delayed", deliver_ms=first_ms)]


def _act_events(draft: Draft) -> list[Event]:
    return [
        Event(act.at_ms, act.what.lower(), by=act.by or None, deliver_ms=act.until_ms or None)
        for act in draft.acts
    ]


def _events(row: TraceRow, attempt: TraceEntry, consumer: str | None) -> Iterator[Event]:
    """`consumer` is the one whose cursor it was, in a broadcast; `row.consumer` is the one that tried."""
    detail = attempt.detail or None
    if attempt.outcome in _BY_HAND:
        by, _, rest = attempt.detail.partition(" ")
        outcome, _, reason = rest.partition(" ")
        yield Event(
            row.started_ms,
            attempt.outcome.lower(),
            consumer=consumer,
            outcome=outcome or None,
            detail=reason or None,
            by=by or None,
        )
    if attempt.outcome not in ATTEMPTS:
        return
    yield Event(
        row.started_ms,
        "delivered",
        consumer=row.consumer or None,
        attempt=attempt.attempt,
        rank=row.rank,
        total=row.total,
        duration_ms=attempt.duration_ms,
        outcome=attempt.outcome,
        detail=detail,
        answer=attempt.answer,
    )
    if attempt.outcome == AttemptOutcome.DEAD:
        yield _burial(row.started_ms + attempt.duration_ms, consumer, attempt.attempt, attempt.detail)


def _burial(at_ms: int, consumer: str | None, attempt: int | None, reason: str) -> Event:
    return Event(
        at_ms,
        "buried",
        consumer=consumer,
        attempt=attempt,
        outcome=AttemptOutcome.DEAD,
        detail=reason or None,
    )


def latest_attempts(
    traces: Traces,
    topic: Topic,
    group: Group,
    consumer: Consumer,
    shards: Sequence[int],
    limit: int,
    may_go_on: Callable[[], bool] = lambda: True,
) -> History:
    """Up to `limit` attempts at a consumer, from the traces: those at the last messages of each shard. Retries of older
    messages are not among them, nor what is on shards beyond MOST_SHARDS. Its own `shards` are read first, as long as
    `may_go_on()`: one query per shard; more of its own, and of each in a broadcast, where the rows of other consumers
    lie beside them."""
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
        attempts += _attempts_of(rows)
    return _newest(attempts, limit, is_whole)


def attempts_since(
    traces: Traces, topic: Topic, group: Group, since_ms: int, may_go_on: Callable[[], bool]
) -> History:
    """The group's attempts since a moment, from the traces: those at the last messages of each shard, one query for
    each of up to MOST_SHARDS shards, as long as `may_go_on()`. Retries of older messages are not among them."""
    attempts: list[PastAttempt] = []
    is_whole = topic.shards <= MOST_SHARDS
    for shard in range(min(topic.shards, MOST_SHARDS)):
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
                yield PastAttempt(row.started_ms, row.key.shard.shard, *fields)


def _newest(attempts: list[PastAttempt], most: int, is_whole: bool) -> History:
    attempts.sort(key=lambda each: (each.at_ms, each.offset), reverse=True)
    return History(attempts[:most], is_whole and len(attempts) <= most)


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
