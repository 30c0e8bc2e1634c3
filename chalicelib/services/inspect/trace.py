"""A message's history: from the message itself, from the traces of its attempts, and from the leases it is under."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...domain import ids
from ...domain.errors import Unavailable
from ...domain.message import DeadReason, Draft, Message
from ...domain.replay import REPLAY_HEADER, REPLAY_OF_HEADER
from ...domain.status import Status
from ...domain.topic import Group, Topic, cursor_key
from ...domain.trace import ATTEMPTS, AttemptOutcome, TraceEntry, TraceRow
from ...domain.transaction import Transaction
from ...ports.world import Clock
from ..core.catalog import Catalog
from ..produce.delayed import DelayedMessage
from .statuses import OpenLease, Snapshot, Statuses

if TYPE_CHECKING:
    from ...store.traces import Traces
    from ...store.transactions import Transactions


_ON_DEAD_LETTERS: dict[str, str] = {  # an admin's operations
    AttemptOutcome.REDRIVEN: "redriven",
    AttemptOutcome.EDITED: "edited",
    AttemptOutcome.DELETED: "deleted",
}

_WITHOUT_ATTEMPT = (DeadReason.EXPIRED, DeadReason.RATE_LIMITED, DeadReason.UNDECODABLE)


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a message: prepared, accepted, delayed, postponed, edited, cancelled, due (it came
    into its log), leased (it is, at this moment), delivered (an attempt), buried, redriven, deleted (its dead letter).

    `shard` is None before it has one. `by` is the id of the token that did it, None where nobody did or it is not
    known. `owner` holds the lease until `deadline_ms`. `deliver_ms` is the time it was to wait for.
    """

    at_ms: int
    event: str
    shard: int | None
    group: str | None = None
    consumer: str | None = None
    attempt: int | None = None
    rank: int | None = None
    total: int | None = None
    duration_ms: int | None = None
    outcome: str | None = None
    detail: str | None = None
    by: str | None = None
    owner: str | None = None
    deadline_ms: int | None = None
    deliver_ms: int | None = None


@dataclass(frozen=True, slots=True)
class _Burial:
    """A delivery that became a dead letter: from its record, or as its redrive noted it."""

    consumer_uid: str
    at_ms: int
    attempts: int
    reason: str

    def is_shown_by(self, dead_attempts: Set[tuple[str, int]]) -> bool:
        """Has the trace an attempt that ended with this burial? An attempt may end REJECTED or ATTEMPTS_EXHAUSTED."""
        has_ended_one = self.reason not in _WITHOUT_ATTEMPT
        return has_ended_one and (self.consumer_uid, self.attempts) in dead_attempts

    def event(self, group: Group, shard: int, consumer: str | None) -> Event:
        """The burial as an event."""
        return Event(
            self.at_ms,
            "buried",
            shard,
            group.name,
            consumer,
            attempt=self.attempts or None,
            outcome=AttemptOutcome.DEAD,
            detail=self.reason or None,
        )


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
        snapshot: Snapshot | None = None,
    ) -> list[Event]:
        """All events of the message, in order of time. Servers' clocks differ, so no event is shown before the
        message's entry into the log. What was read of it just now can be passed as `snapshot`."""
        snapshot = snapshot or self._statuses.with_cursors({})
        events = [replace(e, shard=message.shard) for e in _entry(message, self._transaction(message))]
        for group in self._catalog.groups(topic) if only is None else only:
            of_group = self._of_group(topic, group, message, snapshot)
            events += (replace(e, at_ms=max(e.at_ms, message.accepted_ms)) for e in of_group)
        return sorted(events, key=lambda e: e.at_ms)

    def path_before_log(self, before: DelayedMessage | Transaction) -> list[Event]:
        """The events of a delayed or prepared message."""
        message = before.message
        if isinstance(before, DelayedMessage):
            transaction = self._transaction(message)
            return _beginning_events(message, before.timer.due_ms, transaction) + _act_events(message.draft)
        prepared_event = Event(before.prepared_ms, "prepared", None, by=message.by or None)
        return [prepared_event, *_act_events(message.draft)]

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

    def _lease_events(
        self, topic: Topic, group: Group, shard: int, leases: Sequence[OpenLease], names: Mapping[str, str]
    ) -> Iterator[Event]:
        """The attempts under way, and those whose leases ran out and that no claim has noted yet. When a lease began is
        reckoned from its end and the group's `lease_seconds`."""
        usual_ms = (group.lease_seconds or topic.lease_seconds) * 1000
        for lease in leases:
            if lease.has_lapsed:
                yield _lapsed(group, shard, lease, names)
            else:
                at_ms = min(self._clock.now_ms(), lease.deadline_ms - usual_ms)
                yield _lease(at_ms, group, shard, lease, names)

    def _of_group(self, topic: Topic, group: Group, message: Message, snapshot: Snapshot) -> Iterator[Event]:
        key = cursor_key(topic, group, message.shard)
        names = self._catalog.consumer_names(topic, group)
        # The leases first: an attempt that is settled or noted between the two reads is in both, and not in neither.
        leases = list(self._statuses.open_leases(topic, group, message, snapshot))
        rows = self._traces.rows_covering(key, message.offset)
        ended_tokens = {(row.key.consumer_uid, row.id) for row in rows}
        open_leases = [each for each in leases if (each.consumer_uid, each.token) not in ended_tokens]
        entries = [(row, entry) for row in rows for entry in row.entries if entry.offset == message.offset]
        dead_attempts = {
            (row.key.consumer_uid, entry.attempt)
            for row, entry in entries
            if entry.outcome == AttemptOutcome.DEAD
        }
        burials = list(self._burials_recorded(topic, group, message, snapshot))
        for row, entry in entries:
            uid = row.key.consumer_uid
            yield from _events(group, message.shard, row, entry, names.get(uid))
            if entry.outcome == AttemptOutcome.BURIED:
                at_ms = row.started_ms - entry.duration_ms
                burials.append(_Burial(uid, at_ms, entry.attempt, entry.detail))
        for burial in burials:
            if not burial.is_shown_by(dead_attempts):
                yield burial.event(group, message.shard, names.get(burial.consumer_uid))
        yield from self._lease_events(topic, group, message.shard, open_leases, names)

    def _burials_recorded(
        self, topic: Topic, group: Group, message: Message, snapshot: Snapshot
    ) -> Iterator[_Burial]:
        """The burials that no redrive has ended. What was buried without an attempt (it expired, or its leases ran out)
        shows in its record only."""
        for uid in self._catalog.cursor_owners(topic, group):
            record = snapshot.records.get(cursor_key(topic, group, message.shard, uid), message.offset)
            if record and record.status == Status.DEAD:
                yield _Burial(uid, record.at_ms, record.attempts, record.reason or "")


def _entry(message: Message, transaction: Transaction | None) -> list[Event]:
    """How the message came into its log, and what was done to it before anybody claimed it. `transaction` is the one it
    was prepared in, if that is known."""
    headers, draft = message.draft.headers, message.draft
    replay_id = headers.get(REPLAY_HEADER)
    replay_note = f"replay {replay_id} of {headers.get(REPLAY_OF_HEADER)}" if replay_id is not None else None
    accepted_event = Event(message.accepted_ms, "accepted", None, detail=replay_note, by=message.by or None)
    events = [accepted_event]
    if draft.accepted_ms is not None and draft.due_ms is not None:
        beginning_events = _beginning_events(message, draft.due_ms, transaction)
        events = [*beginning_events, Event(message.accepted_ms, "due", None)]
    elif draft.accepted_ms is not None:
        event = Event(draft.accepted_ms, "prepared", None, by=message.by or None)
        by = transaction.committed_by if transaction else ""
        events = [event, replace(accepted_event, by=by or None)]
    return events + _act_events(draft)


def _beginning_events(message: Message, due_ms: int, transaction: Transaction | None) -> list[Event]:
    """The events of a delayed message's beginning. `due_ms` is when it is due in the end; where its transaction is not
    known, neither is when it was committed."""
    at_ms, by = message.first_accepted_ms, message.by or None
    if timer_id := ids.parse_timed_id(message.id):
        accepted_event = Event(at_ms, "accepted", None, by=by)
        return [accepted_event, replace(accepted_event, event="delayed", deliver_ms=timer_id.due_ms)]
    prepared_event = Event(at_ms, "prepared", None, by=by)
    if transaction is None or transaction.decided_ms is None:
        return [prepared_event, replace(prepared_event, event="delayed", deliver_ms=due_ms)]
    committer = transaction.committed_by or None
    accepted_event = Event(transaction.decided_ms, "accepted", None, by=committer)
    first_ms = due_ms if transaction.due_ms is None else transaction.due_ms
    return [prepared_event, accepted_event, replace(accepted_event, event="delayed", deliver_ms=first_ms)]


def _act_events(draft: Draft) -> list[Event]:
    return [
        Event(act.at_ms, act.what.lower(), None, by=act.by or None, deliver_ms=act.until_ms or None)
        for act in draft.acts
    ]


def _lapsed(group: Group, shard: int, lease: OpenLease, names: Mapping[str, str]) -> Event:
    """The attempt as the next claim will note it, but for the consumer's rank."""
    return Event(
        lease.deadline_ms,
        "delivered",
        shard,
        group.name,
        names.get(lease.owner_uid),
        lease.attempt,
        duration_ms=0,
        outcome=AttemptOutcome.LAPSED,
    )


def _lease(at_ms: int, group: Group, shard: int, lease: OpenLease, names: Mapping[str, str]) -> Event:
    return Event(
        at_ms,
        "leased",
        shard,
        group.name,
        names.get(lease.consumer_uid or lease.owner_uid),
        lease.attempt,
        owner=names.get(lease.owner_uid),
        deadline_ms=lease.deadline_ms,
    )


def _events(
    group: Group, shard: int, row: TraceRow, attempt: TraceEntry, consumer: str | None
) -> Iterator[Event]:
    """`consumer` is the one whose cursor it was, in a broadcast; `row.consumer` is the one that tried."""
    if action := _ON_DEAD_LETTERS.get(attempt.outcome):
        yield Event(row.started_ms, action, shard, group.name, consumer, by=attempt.detail or None)
        return
    if attempt.outcome not in ATTEMPTS:  # of a later release, during an upgrade
        return
    ended_ms = row.started_ms + attempt.duration_ms
    yield Event(
        row.started_ms,
        "delivered",
        shard,
        group.name,
        row.consumer or None,
        attempt.attempt,
        row.rank,
        row.total,
        attempt.duration_ms,
        attempt.outcome,
        attempt.detail or None,
    )
    if attempt.outcome == AttemptOutcome.DEAD:
        yield Event(
            ended_ms,
            "buried",
            shard,
            group.name,
            consumer,
            attempt=attempt.attempt,
            outcome=AttemptOutcome.DEAD,
            detail=attempt.detail or None,
        )
