"""The limit of a push group (`max_in_flight`), over all its shards and in all processes. The leases in its cursors show
how many messages are in flight.

Each cursor may always have a few messages leased: its guarantee. A run that claims more reads all cursors *after* the
claim, and returns at once what exceeds the limit. Of several claims at the same time the last one sees all the others,
so the messages sent never exceed the limit. A slot that one cursor does not use is free for any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .cursor import Cursor
from .cursor_transitions import lapse
from .topic import Group, Topic

_SURE = 4  # one slot in so many is reserved for the cursors' guarantees
# One in so many, if less gives a cursor none: without a guarantee, one run has to serve all shards.
_SURE_OF_ONE = 3


def guaranteed_of(topic: Topic, group: Group) -> int:
    """How many messages each cursor of a group, its retry lane's included, may have in flight without reading the
    others."""
    cursors = len(topic.shard_numbers) + 1
    return group.max_in_flight // (_SURE * cursors) or int(group.max_in_flight >= _SURE_OF_ONE * cursors)


class Claimed(NamedTuple):
    """How far a cursor was at one moment: how many messages had been claimed once, and how many of these did not wait
    for another claim."""

    once: int
    not_waiting: int

    @classmethod
    def of(cls, cursor: Cursor) -> Claimed:
        """What a cursor shows."""
        return cls(cursor.next, cursor.next - sum(span.count for span in cursor.waiting))

    def beyond(self, before: Claimed) -> int:
        """How many messages were claimed since a moment before, at least."""
        return max(self.once - before.once, self.not_waiting - before.not_waiting)


@dataclass(kw_only=True, frozen=True, slots=True)
class InFlight:
    """How many messages a group's cursors had in flight at one moment, by the log's partition key. Each cursor may
    always have `guaranteed`."""

    leased: Mapping[str, int]
    cursors: int
    guaranteed: int
    most: int
    by_consumer: Mapping[str, int] = field(default_factory=dict)

    @property
    def slots(self) -> int:
        """How many slots are in use or reserved by the guarantee."""
        return self.cursors * self.guaranteed + sum(max(0, n - self.guaranteed) for n in self.leased.values())

    @property
    def busy(self) -> set[str]:
        """The cursors that use their whole guarantee: each is assumed to want an equal share."""
        return {key for key, n in self.leased.items() if n and n >= self.guaranteed}

    def slots_for_others(self, own: Iterable[str], busy_before: Iterable[str] = ()) -> int:
        """How many more slots to leave to cursors that aren't `own`. One that was busy a moment ago, and is between two
        claims, wants its share, too. Of `own` those that are busy count, but one at least: the one that asks."""
        wanting = self.busy.union(busy_before)
        others = wanting.difference(own)
        sharing = len(others) + max(1, len(wanting.intersection(own)))
        part = (self.most - self.guaranteed * max(0, self.cursors - sharing)) // sharing
        return sum(max(0, part - max(self.leased.get(key, 0), self.guaranteed)) for key in others)


def in_flight_of(topic: Topic, group: Group, cursors: Mapping[str, Cursor], now_ms: int) -> InFlight:
    """What these cursors have in flight. Pull consumers are not limited and do not count."""
    leased_by_key: dict[str, int] = {}
    by_consumer: Counter[str] = Counter()
    for key, cursor in cursors.items():
        counts = [
            (lease.owner, lease.slots)
            for lease in lapse(cursor, now_ms).leases.values()
            if not lease.is_pulled
        ]
        leased_by_key[key] = sum(count for _, count in counts)
        for owner, count in counts:
            by_consumer[owner] += count
    return InFlight(
        leased=leased_by_key,
        cursors=len(topic.shard_numbers) + 1,
        guaranteed=guaranteed_of(topic, group),
        most=group.max_in_flight,
        by_consumer=by_consumer,
    )
