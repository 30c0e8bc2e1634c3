"""Retry lanes: finds the message that an entry refers to.

A group's lane (in a broadcast: a consumer's) is a log of one shard beside the topic's. Its entries refer to messages
that are to be tried again; only the entry of an edited message holds the content itself.
"""

from __future__ import annotations

from dataclasses import replace

from ...domain.message import Draft, Message, Origin, is_expired
from ...domain.notice import mark_of
from ...domain.timer import Timer, TimerKind, retry_id
from ...domain.topic import Group, Topic, lane_of
from ..core.log_reader import Freshness, LogReader

_LONG_AGO_MS = 1


def resolve(reader: LogReader, topic: Topic, entry: Message, trust: Freshness) -> Message:
    """The message that an entry refers to, with its origin; its retention ends with that of its row or of the entry,
    whichever is earlier. A message without an origin is returned as it is.

    A message that has expired from the log meanwhile is returned empty and expired, so that it becomes a dead letter.
    One that had expired when its entry was stored is over, even by a clock that is behind: its retry was due later.
    """
    origin = entry.draft.origin
    if origin is None:
        return entry
    if origin.whole:
        fields = (origin.id, origin.shard, origin.offset, origin.accepted_ms)
        ends_ms = _LONG_AGO_MS if is_expired(entry.draft, entry.accepted_ms) else entry.ends_ms
        return Message(*fields, replace(entry.draft, origin=origin), ends_ms=ends_ms)
    message = reader.fetch(topic.shard_key(origin.shard), [origin.offset], trust)[origin.offset].message
    if message is None:
        headers = entry.draft.headers
        expired_draft = Draft(b"", is_json=False, headers=headers, expires_ms=_LONG_AGO_MS, origin=origin)
        return Message(origin.id, origin.shard, origin.offset, origin.accepted_ms, expired_draft)
    had_expired = is_expired(message.draft, entry.accepted_ms)
    ends_ms = _LONG_AGO_MS if had_expired else min(message.ends_ms, entry.ends_ms)
    return replace(message, draft=replace(message.draft, origin=origin), ends_ms=ends_ms)


def content(message: Message) -> Message:
    """The message without its origin."""
    return replace(message, draft=replace(message.draft, origin=None)) if message.draft.origin else message


def timer_of(topic: Topic, group: Group, uid: str, entry: Draft, due_ms: int, stored_ms: int = 0) -> Timer:
    """The timer that brings an entry to the lane. Without `stored_ms` the mover's schedule sends a wake-up, too."""
    origin = entry.origin
    assert origin
    return Timer(
        due_ms=due_ms,
        id=retry_id(group.uid, uid, origin.shard, origin.offset, origin.attempts),
        kind=TimerKind.RETRY,
        shard=lane_of(topic, group, uid).shard_key(0),
        draft=entry,
        keep_days=topic.retention_days,
        group_uid=group.uid,
        consumer_uid=uid,
        stored_ms=stored_ms,
    )


def entry_of(message: Message, attempts: int, attempts_before_redrive: int, *, whole: bool = False) -> Draft:
    """The entry for a message with `attempts` attempts, `attempts_before_redrive` of them before its last redrive."""
    # An edited message is stored whole: the process that claims the entry may have cached an older copy.
    whole = whole or message.draft.changed_ms is not None
    whole = whole or bool(message.draft.origin and message.draft.origin.whole)
    fields = (message.id, message.shard, message.offset, message.accepted_ms)
    origin = Origin(*fields, attempts, attempts_before_redrive, whole=whole)
    if whole:
        return replace(message.draft, origin=origin, dead_reason=None)
    return Draft(b"", is_json=False, headers=mark_of(message.draft), origin=origin)
