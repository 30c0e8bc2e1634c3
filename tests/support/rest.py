"""Bringing a topic to rest with healthy consumers, and reading off what the store then holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from chalicelib.domain import cursor as algebra
from chalicelib.domain import ranges
from chalicelib.domain.cursor import Cursor, Position
from chalicelib.domain.message import Message
from chalicelib.domain.topic import Group, Topic, cursor_key
from chalicelib.ports import Record
from chalicelib.wiring import Deps
from tests.support.events import Final
from tests.support.flows import Client, label_of, reader_name

_MOST_ROUNDS = 50


def readers_of(deps: Deps, topic: Topic) -> list[tuple[Group, str | None, str]]:
    """Every group, or in a broadcast every consumer of it, with the consumer's uid."""
    control = deps.adapters.control
    found: list[tuple[Group, str | None, str]] = []
    for group in control.groups(topic):
        if group.mode == "broadcast":
            found += [(group, c.name, c.uid) for c in control.consumers(topic, group)]
        else:
            found.append((group, None, ""))
    return found


def drain(client: Client) -> int:
    """Healthy consumers take and acknowledge whatever can be had now; how much it was."""
    taken = 0
    for group, consumer, _ in readers_of(client.deps, client.topic):
        for _ in range(_MOST_ROUNDS):
            got = client.receive(group.name, 100, consumer)
            if not got:
                break
            client.ack(group.name, got, consumer)
            taken += len(got)
        else:
            raise AssertionError(f"there is no end to what {group.name} receives")
    return taken


def final(client: Client) -> Final:
    """What the store holds, read row by row."""
    deps, topic = client.deps, client.topic
    places: defaultdict[str, list[str]] = defaultdict(list)
    statuses: dict[tuple[str, str], str | None] = {}
    for shard in range(topic.shards):
        messages = list(_messages(deps, topic, shard))
        for message in messages:
            blob = message.draft.blob
            body = deps.adapters.blobs.get(blob) if blob else message.draft.body
            places[label_of(body or b"?")].append(message.id)
        for group, consumer, uid in readers_of(deps, topic):
            key = cursor_key(topic, group, shard, uid)
            cursor = deps.adapters.cursors.get(key, consistent=True) or Cursor()
            for message in messages:
                place = algebra.position(cursor, message.offset)[0]
                record = deps.adapters.records.get(key, message.offset) if place is Position.SETTLED else None
                reader = reader_name(group.name, consumer)
                statuses[reader, message.id] = _status(cursor, message.offset, place, record)
    return Final({label: tuple(ids) for label, ids in places.items()}, statuses)


def _messages(deps: Deps, topic: Topic, shard: int) -> Iterator[Message]:
    at = 0
    while rows := deps.adapters.log.read(topic.shard_key(shard), at, 100, consistent=True):
        at = rows[-1].end
        yield from (m for row in rows for o in range(row.first, row.end) if (m := row.message(shard, o)))


def _status(cursor: Cursor, offset: int, place: Position, record: Record | None) -> str | None:
    """The status by cursor and record; VANISHED where the cursor has lost sight of the offset."""
    if place is not Position.SETTLED:
        return None if place is Position.NOT_OWED else place.value
    if offset >= cursor.floor and not ranges.contains(cursor.settled, offset):
        return "VANISHED"
    return "DEAD" if record and record.status == "DEAD" else "SUCCESS"
