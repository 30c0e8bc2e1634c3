"""A message's path, put together from what covers its offset."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..domain.message import Message
from ..domain.replay import MARK, MARK_OF
from ..domain.topic import Group, Topic, cursor_key
from ..domain.trace import TraceRow, Tried
from ..ports import Records, Traces
from .catalog import Catalog


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a message: accepted, edited, cancelled, delivered (an attempt), buried,
    redriven."""

    at_ms: int
    event: str
    shard: int
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
        """Everything that happened to the message, in order of time."""
        headers = message.draft.headers
        replayed = f"replay {headers[MARK]} of {headers.get(MARK_OF)}" if MARK in headers else None
        events = [Event(message.accepted_ms, "accepted", message.shard, detail=replayed)]
        if changed_ms := message.draft.changed_ms:
            events.append(
                Event(changed_ms, "cancelled" if message.draft.cancelled else "edited", message.shard)
            )
        for group in self._catalog.groups(topic):
            events += self._of_group(topic, group, message)
        return sorted(events, key=lambda e: e.at_ms)

    def _of_group(self, topic: Topic, group: Group, message: Message) -> Iterator[Event]:
        key = cursor_key(topic, group, message.shard)
        rows = self._traces.covering(key, message.offset)
        for row in rows:
            for tried in row.tried:
                if tried.offset == message.offset:
                    yield from _events(group, message.shard, row, tried)
        if not any(t.outcome == "DEAD" for row in rows for t in row.tried if t.offset == message.offset):
            yield from self._buried_unseen(topic, group, message)

    def _buried_unseen(self, topic: Topic, group: Group, message: Message) -> Iterator[Event]:
        """What was buried without an attempt (it expired, or its leases ran out) shows in its record only."""
        for uid in self._catalog.cursor_owners(topic, group):
            record = self._records.get(cursor_key(topic, group, message.shard, uid), message.offset)
            if record and record.status == "DEAD":
                yield Event(
                    record.at_ms,
                    "buried",
                    message.shard,
                    group.name,
                    attempt=record.attempts or None,
                    outcome="DEAD",
                    detail=record.reason,
                )


def _events(group: Group, shard: int, row: TraceRow, tried: Tried) -> Iterator[Event]:
    if tried.outcome == "REDRIVEN":
        yield Event(row.started_ms, "redriven", shard, group.name)
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
            attempt=tried.attempt,
            outcome="DEAD",
            detail=tried.detail or None,
        )
