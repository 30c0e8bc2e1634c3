"""What an ordering key promises, judged by where its messages stand in the log in the end (ADR 21): one shard for all,
however the topic grew; in it those that wait by their due times, then by acceptance; all others by acceptance.

How consumers keep to the order of the log is the history's to judge (I7).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from tests.simulation.promises import Promises
from tests.support.events import Event, Final, Op, Told


@dataclass(frozen=True, slots=True)
class Standing:
    """A message that was accepted for certain: where it stands, and which requests asked for it. `due_ms` is None where
    it did not wait, `entered` when it came into the log, by the world's stamps."""

    label: str
    spot: tuple[int, int]
    asks: tuple[Event, ...]
    due_ms: int | None
    entered: int

    @property
    def asked(self) -> int:
        return min(ask.began for ask in self.asks)

    @property
    def accepted(self) -> int:
        return min(ask.ended for ask in self.asks if ask.told is Told.OK)

    def waited(self, skew_ms: int) -> bool:
        """Was it accepted before its time, by any clock? Else a later message may be in flight."""
        accepted_ms = min(ask.ended_ms for ask in self.asks if ask.told is Told.OK)
        return self.due_ms is not None and accepted_ms < self.due_ms - skew_ms


def disordered(events: Sequence[Event], final: Final, promises: Promises, skew_ms: int) -> Iterator[str]:
    """Which messages stand where their key forbids it. Clocks lie up to `skew_ms` apart."""
    order = {id(event): n for n, event in enumerate(events)}
    by_key: defaultdict[str, list[Standing]] = defaultdict(list)
    for key, place in _standing(events, final, promises):
        by_key[key].append(place)
    for key, members in by_key.items():
        if len(shards := {m.spot[0] for m in members}) > 1:
            yield f"key {key} is in shards {sorted(shards)}"
            continue
        for pair in combinations(members, 2):
            for one, other in (pair, pair[::-1]):
                if _comes_first(one, other, order, skew_ms) and one.spot > other.spot:
                    yield f"{one.label} of key {key} stands behind {other.label}"


def _standing(events: Sequence[Event], final: Final, promises: Promises) -> Iterator[tuple[str, Standing]]:
    produces: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        has_key = event.unit[:1] != "-"
        if event.op is Op.PRODUCE and has_key and event.maybe and event.label not in promises.deals:
            produces[event.label].append(event)
    for label, of_label in produces.items():
        ids = {event.message_id for event in of_label if event.told is Told.OK} & set(
            final.places.get(label, ())
        )
        delay = promises.delays.get(label)
        if len(ids) != 1 or (delay and delay.was_moved):
            continue
        (message_id,) = ids
        due_ms = next(iter(delay.forms))[0] if delay else None
        entered = promises.entered.get(message_id, 0)
        yield of_label[0].unit, Standing(label, final.spots[message_id], tuple(of_label), due_ms, entered)


def _comes_first(one: Standing, other: Standing, order: Mapping[int, int], skew_ms: int) -> bool:
    """Must it, beyond doubt?"""
    ahead = _is_ahead_in_batch(one, other, order)
    before = one.accepted < other.asked or ahead
    if one.due_ms is None:
        return before and other.due_ms is None
    if other.due_ms is None:
        return False
    if one.due_ms < other.due_ms:
        return one.accepted < other.entered and one.waited(skew_ms)
    return one.due_ms == other.due_ms and before and (ahead or not skew_ms)


def _is_ahead_in_batch(one: Standing, other: Standing, order: Mapping[int, int]) -> bool:
    """Were both asked for once, in one request, and this one first?"""
    if len(one.asks) > 1 or len(other.asks) > 1:
        return False
    mine, its = one.asks[0], other.asks[0]
    return (mine.began, mine.ended) == (its.began, its.ended) and order[id(mine)] < order[id(its)]
