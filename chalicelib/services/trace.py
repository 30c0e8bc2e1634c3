"""A message's path, put together from what covers its offset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace

from ..domain.message import Message
from ..domain.replay import MARK, MARK_OF
from ..domain.topic import Group, Topic, cursor_key
from ..domain.trace import TraceRow, Tried
from ..domain.transaction import Transaction
from ..ports import Records, Traces
from .catalog import Catalog
from .delayed import Waiting


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a message: accepted, prepared, edited, cancelled, delivered (an attempt), buried,
    redriven. `shard` is None before it has one."""

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


class Tracer:
    """Reads traces; nothing here changes anything."""

    def __init__(self, catalog: Catalog, traces: Traces, records: Records) -> None:
        self._catalog = catalog
        self._traces = traces
        self._records = records

    def path(self, topic: Topic, message: Message) -> list[Event]:
        """Everything that happened to the message, in order of time. What came of it is told by other clocks than
        its acceptance: whatever they say, that was before."""
        headers = message.draft.headers
        replayed = f"replay {headers[MARK]} of {headers.get(MARK_OF)}" if MARK in headers else None
        events = [Event(message.accepted_ms, "accepted", message.shard, detail=replayed)]
        if changed_ms := message.draft.changed_ms:
            events.append(
                Event(changed_ms, "cancelled" if message.draft.cancelled else "edited", message.shard)
            )
        for group in self._catalog.groups(topic):
            events += self._of_group(topic, group, message)
        told = (replace(e, at_ms=max(e.at_ms, message.accepted_ms)) for e in events)
        return sorted(told, key=lambda e: e.at_ms)

    def before_log(self, held: Waiting | Transaction) -> list[Event]:
        """The path of a message that waits for its time or for a commit. (When a delayed one was cancelled is not
        known.)"""
        if isinstance(held, Waiting):
            return [Event(held.message.accepted_ms, "accepted", None)]
        events = [Event(held.prepared_ms, "prepared", None)]
        if held.decided_ms is not None:
            events.append(Event(held.decided_ms, "cancelled", None))
        return events

    def _of_group(self, topic: Topic, group: Group, message: Message) -> Iterator[Event]:
        key = cursor_key(topic, group, message.shard)
        names = {c.uid: c.name for c in self._catalog.consumers(topic, group)}
        rows = self._traces.covering(key, message.offset)
        dead: set[str] = set()
        for row in rows:
            uid = row.key.consumer_uid
            for tried in row.tried:
                if tried.offset == message.offset:
                    yield from _events(group, message.shard, row, tried, names.get(uid))
                    dead |= {uid} if tried.outcome == "DEAD" else set()
        yield from self._buried_unseen(topic, group, message, names, dead)

    def _buried_unseen(
        self, topic: Topic, group: Group, message: Message, names: Mapping[str, str], seen: Set[str]
    ) -> Iterator[Event]:
        """What was buried without an attempt (it expired, or its leases ran out) shows in its record only."""
        for uid in self._catalog.cursor_owners(topic, group):
            if uid in seen:
                continue
            record = self._records.get(cursor_key(topic, group, message.shard, uid), message.offset)
            if record and record.status == "DEAD":
                yield Event(
                    record.at_ms,
                    "buried",
                    message.shard,
                    group.name,
                    names.get(uid),
                    attempt=record.attempts or None,
                    outcome="DEAD",
                    detail=record.reason,
                )


def _events(group: Group, shard: int, row: TraceRow, tried: Tried, whose: str | None) -> Iterator[Event]:
    """`whose` cursor it was, in a broadcast."""
    if tried.outcome == "REDRIVEN":
        yield Event(row.started_ms, "redriven", shard, group.name, whose)
        return
    ended_ms = row.started_ms + tried.duration_ms
    yield Event(
        row.started_ms,
        "delivered",
        shard,
        group.name,
        row.consumer or None,
        tried.attempt,
        row.rank,
        row.total,
        tried.duration_ms,
        tried.outcome,
        tried.detail or None,
    )
    if tried.outcome == "DEAD":
        yield Event(
            ended_ms,
            "buried",
            shard,
            group.name,
            whose,
            attempt=tried.attempt,
            outcome="DEAD",
            detail=tried.detail or None,
        )
