"""A message's history: from the message itself, from the traces of its attempts, and from the leases it is under."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...domain import ids
from ...domain.call_result import Answer
from ...domain.errors import Unavailable
from ...domain.message import DeadReason, Draft, Message
from ...domain.replay import REPLAY_HEADER, REPLAY_OF_HEADER
from ...domain.status import Status
from ...domain.topic import Group, Topic, cursor_key
from ...domain.trace import ATTEMPTS, AttemptOutcome, TraceEntry, TraceRow
from ...domain.transaction import Transaction
from ...ports.world import Clock
from ...store import Traces, Transactions
from ..core.catalog import Catalog
from ..produce.delayed import DelayedMessage
from .statuses import OpenLease, Statuses, TopicStatuses

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


class _Burial(NamedTuple):
    """A delivery that became a dead letter: from its record, or as its redrive noted it."""

    consumer_uid: str
    at_ms: int
    attempts: int
    reason: str


@dataclass(kw_only=True, frozen=True, slots=True)
class Tracer:
    """Reads traces; nothing here changes anything."""

    catalog: Catalog
    traces: Traces
    transactions: Transactions
    statuses: Statuses
    clock: Clock

    def path(
        self,
        topic: Topic,
        message: Message,
        only: Sequence[Group] | None = None,
        seen: TopicStatuses | None = None,
    ) -> list[Event]:
        """All events of the message, in order of time. Servers' clocks differ, so no event is shown before the
        message's entry into the log. Pass the statuses that were `seen` just now."""
        seen = seen or self.statuses.of_topic(topic)
        entry = _with_producer(message, _entry(message, self._transaction(message)))
        events = [replace(e, shard=message.shard) for e in entry]
        for group in self.catalog.groups(topic) if only is None else only:
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
            return self.transactions.get(id)
        except Unavailable:
            return None

    def _of_group(self, seen: TopicStatuses, group: Group, message: Message) -> Iterator[Event]:
        """The group's events, without its name and the shard."""
        topic = seen.topic
        key = cursor_key(topic, group, message.shard)
        names = self.catalog.consumer_names(topic, group)
        # The leases first: an attempt that is settled or noted between the two reads is in both, and not in neither.
        leases = list(seen.open_leases(group, message))
        rows = self.traces.rows_covering(key, message.offset)
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
            event = Event(lease.deadline_ms, "delivered", consumer=owner, attempt=of.attempt)
            return replace(event, duration_ms=0, outcome=AttemptOutcome.LAPSED)
        began_ms = min(self.clock.now_ms(), lease.deadline_ms - usual_ms)
        consumer = names.get(of.consumer_uid or lease.owner)
        event = Event(began_ms, "leased", consumer=consumer, attempt=of.attempt)
        return replace(event, owner=owner, deadline_ms=lease.deadline_ms)

    def _burials_recorded(self, seen: TopicStatuses, group: Group, message: Message) -> Iterator[_Burial]:
        """The burials that no redrive has ended. What was buried without an attempt (it expired, or its leases ran out)
        shows in its record only."""
        for key in self.catalog.cursor_keys(seen.topic, group, message.shard):
            record = seen.records.get(key, message.offset)
            if record and record.status == Status.DEAD:
                yield _Burial(key.consumer_uid, record.at_ms, record.attempts, record.reason or "")


def _entry(message: Message, transaction: Transaction | None) -> list[Event]:
    """How the message came into its log, and what was done to it before the first claim. `transaction` is the one it
    was prepared in, if that is known."""
    headers, draft = message.draft.headers, message.draft
    note = f"schedule {draft.firing.schedule}" if draft.firing else None
    if REPLAY_HEADER in headers:
        note = f"replay {headers[REPLAY_HEADER]} of {headers.get(REPLAY_OF_HEADER)}"
    events = [Event(message.accepted_ms, "accepted", detail=note, by=message.by or None)]
    if draft.accepted_ms is not None and draft.due_ms is not None:
        events = [*_beginning_events(message, draft.due_ms, transaction), Event(message.accepted_ms, "due")]
    elif draft.accepted_ms is not None:
        event = Event(draft.accepted_ms, "prepared", by=message.by or None)
        by = transaction.committed_by if transaction else ""
        events = [event, replace(events[0], by=by or None)]
    return [*events, *_act_events(draft)]


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


def _act_events(draft: Draft) -> Iterator[Event]:
    for act in draft.acts:
        yield Event(act.at_ms, act.what.lower(), by=act.by or None, deliver_ms=act.until_ms or None)


def _events(row: TraceRow, attempt: TraceEntry, consumer: str | None) -> Iterator[Event]:
    """`consumer` is the one whose cursor it was, in a broadcast; `row.consumer` is the one that tried."""
    if attempt.outcome in _BY_HAND:
        by, _, rest = attempt.detail.partition(" ")
        outcome, _, reason = rest.partition(" ")
        event = Event(row.started_ms, attempt.outcome.lower(), consumer=consumer, by=by or None)
        yield replace(event, outcome=outcome or None, detail=reason or None)
    if attempt.outcome not in ATTEMPTS:
        return
    event = Event(row.started_ms, "delivered", consumer=row.consumer or None, attempt=attempt.attempt)
    event = replace(event, rank=row.rank, total=row.total, duration_ms=attempt.duration_ms)
    yield replace(event, outcome=attempt.outcome, detail=attempt.detail or None, answer=attempt.answer)
    if attempt.outcome == AttemptOutcome.DEAD:
        yield _burial(row.started_ms + attempt.duration_ms, consumer, attempt.attempt, attempt.detail)


def _burial(at_ms: int, consumer: str | None, attempt: int | None, reason: str) -> Event:
    event = Event(at_ms, "buried", consumer=consumer, attempt=attempt)
    return replace(event, outcome=AttemptOutcome.DEAD, detail=reason or None)
