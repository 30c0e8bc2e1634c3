"""Small factories: every field consistent with the others unless a test says otherwise."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from chalicelib.domain.append import DedupEntry, Pack
from chalicelib.domain.cursor import Cursor, Lease
from chalicelib.domain.message import Draft, Message, Origin
from chalicelib.domain.receipt import Receipt
from chalicelib.domain.record import DeadLetter, Record
from chalicelib.domain.segment import Allocation, Segment, ShardKey
from chalicelib.domain.spans import Span
from chalicelib.domain.status import Status
from chalicelib.domain.timer import Timer, TimerKind
from chalicelib.domain.times import DAY_MS
from chalicelib.domain.topic import Consumer, CursorKey, Group, Token, Topic
from chalicelib.domain.trace import TraceEntry, TraceRow
from chalicelib.services.consume.claimant import ClaimedMessage
from chalicelib.store import codec
from chalicelib.store.layout import fragment_of

from .clock import START_MS

_numbers = itertools.count(1)


def uid(kind: str = "u") -> str:
    """Never the same twice, not even over runs: tables may outlive a run."""
    return f"{kind}{next(_numbers)}{uuid4().hex[:8]}"


def topic(name: str = "orders", **settings: Any) -> Topic:
    return Topic(name, settings.pop("uid", uid("t")), settings.pop("created_ms", START_MS), **settings)


def group(of: Topic, name: str = "billing", **settings: Any) -> Group:
    mode = settings.pop("mode", of.mode)
    return Group(of.name, name, settings.pop("uid", uid("g")), of.created_ms, mode=mode, **settings)


def consumer(of: Group, name: str = "worker-1", **settings: Any) -> Consumer:
    seen_ms = settings.pop("seen_ms", of.created_ms)
    return Consumer(
        of.topic, of.name, name, settings.pop("uid", uid("c")), of.created_ms, seen_ms, **settings
    )


def token(token_id: str = "tok1", **settings: Any) -> Token:
    return Token(
        token_id, settings.pop("name", "ci"), "0" * 64, settings.pop("scopes", ("produce",)), **settings
    )


def draft(value: Any = None, **settings: Any) -> Draft:
    """A JSON message; `value` is its body."""
    return Draft(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(), **settings)


def drafts(count: int, **settings: Any) -> list[Draft]:
    return [draft({"n": n}, **settings) for n in range(count)]


def shard(number: int = 0, of: Topic | None = None) -> ShardKey:
    return (of or topic()).shard_key(number)


def segment(first: int = 0, messages: Sequence[Draft] | int = 1, **settings: Any) -> Segment:
    """A segment at `first` with these messages (or so many)."""
    messages = tuple(drafts(messages) if isinstance(messages, int) else messages)
    accepted_ms = settings.pop("accepted_ms", START_MS)
    return Segment(
        first,
        len(messages),
        settings.pop("request_id", uid("r")[-12:].rjust(12, "0")),
        accepted_ms,
        settings.pop("expires_s", (accepted_ms + 7 * DAY_MS) // 1000),
        messages,
        settings.pop("allocation", Allocation.OPTIMISTIC),
    )


def packed(of: Segment) -> Pack:
    return codec.pack(of.drafts)


def dedup(of: Segment, index: int = 0, dedup_id: str = "d1", **settings: Any) -> DedupEntry:
    """What remembers the message at `index` of a segment."""
    return DedupEntry(
        settings.pop("topic_uid", "t0"),
        dedup_id,
        settings.pop("content_hash", "h0"),
        f"{of.request_id}-0-{of.first + index:x}",
        of.accepted_ms,
        settings.pop("ends_ms", of.accepted_ms + 60_000),
    )


def cursor_key(of: ShardKey | None = None, group_uid: str | None = None, consumer_uid: str = "") -> CursorKey:
    return CursorKey(of or shard(), group_uid or uid("g"), consumer_uid)


def leased_cursor(
    first: int, count: int, token: str = "1.aaaa", deadline_ms: int = START_MS + 30_000
) -> Cursor:
    """A cursor that stands at `first` and has the next `count` offsets in one lease."""
    lease = Lease(token, (Span(first, count),), deadline_ms, "me")
    return Cursor(
        floor=first, next=first + count, begin=first, leases={token: lease}, epoch=1, segment_at=first
    )


def record(offset: int, status: str = Status.DEAD, **settings: Any) -> Record:
    return Record(
        shard=settings.pop("shard", 0),
        offset=offset,
        status=Status(status),
        attempts=settings.pop("attempts", 1),
        at_ms=settings.pop("at_ms", START_MS),
        **settings,
    )


def odd_spans(end: int) -> tuple[Span, ...]:
    """Every other offset from 0 on waits by itself: as scattered as a cursor can be."""
    return tuple(Span(n, 1) for n in range(0, end, 2))


def message(offset: int = 0, of: Draft | None = None, **settings: Any) -> Message:
    """A message with this draft."""
    shard_number = settings.pop("shard", 0)
    return Message(
        f"{offset:012d}-0-0", shard_number, offset, settings.pop("accepted_ms", START_MS), of or draft(1)
    )


def dead_record(offset: int, content: Draft | None = None, **settings: Any) -> Record:
    """A burial with the message that is buried."""
    at = message(offset, content, shard=settings.get("shard", 0))
    return record(offset, message=at, reason=settings.pop("reason", "REJECTED"), **settings)


def letter(key: CursorKey, of: Record, **settings: Any) -> DeadLetter:
    """The dead letter that this record leaves."""
    assert of.message is not None
    dead_letter = DeadLetter(
        key, of.offset, of.message, of.reason or "", of.attempts, of.at_ms, last_error=of.last_error
    )
    return replace(dead_letter, **settings)


def origin(offset: int = 0, **settings: Any) -> Origin:
    """Where an entry of a retry lane comes from, after one attempt."""
    return Origin(f"{offset:012d}-0-0", 0, offset, START_MS, settings.pop("attempts", 1), **settings)


def claimed_message(
    attempt: int = 1, offset: int = 0, of: Draft | None = None, **settings: Any
) -> ClaimedMessage:
    """A message that was granted as this attempt of nine."""
    stored_message = message(offset, of, shard=settings.pop("shard", 0))
    receipt = Receipt(
        group_uid=settings.pop("group_uid", "g0"),
        consumer_uid=settings.pop("consumer_uid", ""),
        id=stored_message.id,
        shard=stored_message.shard,
        offset=offset,
        token=settings.pop("token", "1.aaaa"),
        last_attempt=settings.pop("last_attempt", 9),
        claimed_ms=settings.pop("claimed_ms", START_MS),
        expires_ms=stored_message.draft.expires_ms,
        **settings,
    )
    return ClaimedMessage(stored_message, attempt, receipt)


def timer(due_ms: int = START_MS, fragment: int = 0, **settings: Any) -> Timer:
    """A timer kept in this fragment: to put a message into a shard, unless it is of another kind."""
    kind = settings.pop("kind", TimerKind.DELIVER)
    timer_id = settings.pop("id", None) or next(i for i in iter(uid, None) if fragment_of(i) == fragment)
    content = settings.pop("draft", draft(1) if kind not in (TimerKind.WAKE, TimerKind.CHECK) else None)
    return Timer(due_ms, timer_id, kind, settings.pop("shard", None) or shard(), content, **settings)


def entries(
    offsets: Sequence[int], attempt: int = 1, outcome: str = "SUCCESS", **settings: Any
) -> tuple[TraceEntry, ...]:
    return tuple(TraceEntry(offset, attempt, outcome, **settings) for offset in offsets)


def trace(of: CursorKey, attempts: Sequence[TraceEntry], **settings: Any) -> TraceRow:
    """A settled batch of attempts by one consumer."""
    started_ms = settings.pop("started_ms", START_MS)
    return TraceRow(
        of,
        settings.pop("id", None) or uid("x"),
        settings.pop("consumer", "worker-1"),
        settings.pop("rank", 0),
        settings.pop("total", 1),
        started_ms,
        tuple(attempts),
        settings.pop("expires_s", (started_ms + 7 * DAY_MS) // 1000),
    )
