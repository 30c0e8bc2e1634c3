"""Retry lanes: what a lane's entry stands for.

A group's lane (in a broadcast: a consumer's) is a log of one shard beside the topic's. Its entries name messages that
are to be tried again; only one that was edited holds the content itself. So an entry that cannot be read any more is
tried all the same, as long as its row tells the place, and becomes a dead letter only where it held the content.
"""

from __future__ import annotations

from dataclasses import replace

from ...domain.ids import message_id
from ...domain.message import Draft, Message, Origin
from ...domain.topic import Topic
from ..core.log_reader import Freshness, LogReader

_LONG_AGO_MS = 1


def resolve(reader: LogReader, topic: Topic, entry: Message, trust: Freshness) -> Message | None:
    """The message an entry stands for, with its origin, kept as long as row and entry; an ordinary one is itself.
    None for one that only a later release can read.

    What retention has taken meanwhile is empty and expired: it will be buried as such.
    """
    origin = entry.draft.origin
    if origin is None:
        return entry
    if origin.whole and origin.id:
        return _whole(entry, origin)
    slot = reader.fetch(topic.shard_key(origin.shard), [origin.offset], trust)[origin.offset]
    if slot.newer:
        return None
    message = slot.message
    if not origin.id:  # of a damaged entry only the place is known
        id = message.id if message else message_id("damaged", origin.shard, origin.offset)
        origin = replace(origin, id=id, accepted_ms=message.accepted_ms if message else 0)
    if origin.whole:
        return _whole(entry, origin)
    if message is None:
        gone = Draft(b"", is_json=False, expires_ms=_LONG_AGO_MS, origin=origin)
        return Message(origin.id, origin.shard, origin.offset, origin.accepted_ms, gone)
    ends_ms = min(message.ends_ms, entry.ends_ms)
    return replace(message, draft=replace(message.draft, origin=origin), ends_ms=ends_ms)


def _whole(entry: Message, origin: Origin) -> Message:
    place = (origin.id, origin.shard, origin.offset, origin.accepted_ms)
    return Message(*place, replace(entry.draft, origin=origin), ends_ms=entry.ends_ms)


def content(message: Message) -> Message:
    """The message by itself, however it came."""
    return replace(message, draft=replace(message.draft, origin=None)) if message.draft.origin else message


def entry_of(message: Message, attempts: int, spent: int, *, whole: bool = False) -> Draft:
    """What to put into a lane for a message that was tried `attempts` times, `spent` of them in earlier lives."""
    # One that was amended goes whole: whoever claims the entry may hold a copy from before.
    whole = whole or message.draft.changed_ms is not None
    whole = whole or bool(message.draft.origin and message.draft.origin.whole)
    origin = Origin(
        message.id, message.shard, message.offset, message.accepted_ms, attempts, spent, whole=whole
    )
    return (
        replace(message.draft, origin=origin, dead=None)
        if whole
        else Draft(b"", is_json=False, origin=origin)
    )
