"""Bringing a topic to rest with healthy consumers, and reading off what the store then holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from chalicelib.domain import ranges
from chalicelib.domain.cursor import Cursor, OffsetState, offset_state, raise_floor
from chalicelib.domain.message import Message
from chalicelib.domain.record import Record
from chalicelib.domain.topic import CursorKey, Group, Topic, cursor_key
from chalicelib.wiring import Deps
from tests.support.events import Final
from tests.support.flows import Client, label_of, reader_name

_MOST_ROUNDS = 50


@dataclass(frozen=True, slots=True)
class Reader:
    """A group or, in a broadcast, one of its consumers."""

    group: Group
    consumer: str | None
    uid: str
    is_called: bool

    @property
    def name(self) -> str:
        return reader_name(self.group.name, self.consumer)


def readers_of(deps: Deps, topic: Topic, *, with_called: bool = True) -> list[Reader]:
    """All readers of a topic. Push consumers are looked up only where there may be some."""
    control = deps.adapters.control
    readers: list[Reader] = []
    for group in control.groups(topic):
        broadcast = group.mode == "broadcast"
        consumers = control.consumers(topic, group) if broadcast or with_called else []
        if broadcast:
            readers += [Reader(group, c.name, c.uid, c.is_called) for c in consumers]
        else:
            readers.append(Reader(group, None, "", any(c.is_called for c in consumers)))
    return readers


def drain(client: Client, *, with_called: bool = True) -> int:
    """Healthy consumers take and acknowledge all available messages; returns how many."""
    count = 0
    for reader in readers_of(client.deps, client.topic, with_called=with_called):
        if reader.is_called:
            continue
        for _ in range(_MOST_ROUNDS):
            messages = client.receive(reader.group.name, 100, reader.consumer)
            if not messages:
                break
            client.ack(reader.group.name, messages, reader.consumer)
            count += len(messages)
        else:
            raise AssertionError(f"there is no end to what {reader.name} receives")
    return count


def final(client: Client, timers: Callable[[Deps], list[str]] | None = None) -> Final:
    """What the store holds, read table by table; `timers` lists those there are."""
    deps, topic = client.deps, client.topic
    messages = {shard: list(_messages(deps, topic, shard)) for shard in topic.shard_numbers}
    places: defaultdict[str, list[str]] = defaultdict(list)
    for message in chain.from_iterable(messages.values()):
        places[_label(deps, message)].append(message.id)
    spots = {m.id: (m.shard, m.offset) for m in chain.from_iterable(messages.values())}
    statuses: dict[tuple[str, str], str | None] = {}
    letters: set[tuple[str, str]] = set()
    remains = [f"a timer: {item}" for item in (timers or timers_of)(deps)]
    readers = readers_of(deps, topic, with_called=False)
    for reader in readers:
        for shard in topic.shard_numbers:
            key = cursor_key(topic, reader.group, shard, reader.uid)
            cursor = deps.adapters.cursors.get(key, consistent=True) or Cursor()
            offsets = [message.offset for message in messages[shard]]
            records = (
                {
                    record.offset: record
                    for record in deps.adapters.records.between(
                        key.group_uid, key.shard, offsets[0], offsets[-1]
                    )
                    if record.consumer_uid == key.consumer_uid
                }
                if offsets
                else {}
            )
            for message in messages[shard]:
                record = records.get(message.offset)
                statuses[reader.name, message.id] = _status(cursor, message.offset, record)
        if _lane_has_work(deps, cursor_key(topic, reader.group, None, reader.uid)):
            remains.append(f"an entry of the lane of {reader.name}")
    for group in {reader.group.name: reader.group for reader in readers}.values():
        names = {r.uid: r.name for r in readers if r.group.name == group.name}
        dead_letters = [letter for _, letter in deps.adapters.records.dead(topic, group, None, 1000)]
        letters |= {(names.get(x.key.consumer_uid, group.name), x.message.id) for x in dead_letters}
        remains += _miscounted(deps, topic, group, len(dead_letters), statuses.values())
    return Final(
        {label: tuple(ids) for label, ids in places.items()},
        statuses,
        frozenset(letters),
        spots,
        tuple(remains),
    )


def _label(deps: Deps, message: Message) -> str:
    blob = message.draft.blob
    return label_of((deps.adapters.blobs.get(blob) if blob else message.draft.body) or b"?")


def timers_of(deps: Deps) -> list[str]:
    """The timers there are, in one read (`Timers` reads each fragment by itself)."""
    return [f"{row['k']['S']} {row['t']['S']}" for row in _timer_rows(deps) if row["t"]["S"][:1].isdigit()]


def clear_times(deps: Deps) -> None:
    """Remove all timers, marks and places of jobs: the next case begins at the same hour."""
    dynamo = deps.adapters.timers._dynamo
    rows = dynamo.client.scan(TableName=dynamo.tables.rounds)["Items"]
    for table, keys in (
        (dynamo.tables.timers, [{"f": row["f"], "t": row["t"]} for row in _timer_rows(deps)]),
        (dynamo.tables.rounds, [{"r": row["r"], "k": row["k"]} for row in rows]),
    ):
        if keys:
            dynamo.delete(table, keys)


def _timer_rows(deps: Deps) -> list[dict[str, Any]]:
    dynamo = deps.adapters.timers._dynamo
    rows: list[dict[str, Any]] = dynamo.client.scan(TableName=dynamo.tables.timers)["Items"]
    return rows


def _lane_has_work(deps: Deps, key: CursorKey) -> bool:
    cursor = raise_floor(deps.adapters.cursors.get(key, consistent=True) or Cursor())
    if cursor.leases or cursor.waiting or cursor.floor != cursor.next:
        return True
    return bool(deps.adapters.log.read(key.shard, cursor.next, 1, consistent=True))


def _miscounted(
    deps: Deps, topic: Topic, group: Group, letters: int, statuses: Iterable[str | None]
) -> list[str]:
    """I15: what a group's counts say that the rows do not."""
    status = deps.surveyor.exact_group(topic, group)
    if set(statuses) - {"SUCCESS", "DEAD", None}:
        return []  # accused of that already
    counts = (status.backlog, status.in_flight, status.retrying, status.dead)
    return [] if counts == (0, 0, 0, letters) else [f"{group.name} counts {counts} with {letters} letters"]


def _messages(deps: Deps, topic: Topic, shard: int) -> Iterator[Message]:
    at = 0
    while rows := deps.adapters.log.read(topic.shard_key(shard), at, 100, consistent=True):
        at = rows[-1].end
        yield from (m for row in rows for o in range(row.first, row.end) if (m := row.message(shard, o)))


def _status(cursor: Cursor, offset: int, record: Record | None) -> str | None:
    """The status by cursor and record; VANISHED where the cursor has lost sight of the offset."""
    state = offset_state(cursor, offset)[0]
    if state is not OffsetState.SETTLED:
        return None if state is OffsetState.NOT_OWED else state.value
    if offset >= cursor.floor and not ranges.contains(cursor.settled, offset):
        return "VANISHED"
    return record.status if record and not record.waited_in_cursor else "SUCCESS"
