"""The history of what clients saw.

Clients write an Event for each request and its answer: OK, REFUSED (a 4xx: certainly nothing happened) or UNKNOWN (no
answer, a 5xx, or death while waiting). tests/support/history judges them.

`began` and `ended` order events within one history (a counter, or a clock all clients share); the `_ms` are the
time of day that leases and delays count in. A `reader` is a group or, in a broadcast, one of its consumers. A
`label` is the producer's own name of a message: it identifies messages whose id no answer contained.

A push subscriber writes as well: its call as a CLAIM, its answer as a SETTLE, which counts as heard when the run that
called it has ended normally.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, cached_property

from chalicelib.domain.ids import from_base32, parse_message_id

NEVER = 1 << 62
PUSHED = "push"
"""How the made-up token of an attempt ends whose lease nobody showed the subscriber."""


class Op(StrEnum):
    JOIN = "join"  # a group or a broadcast's consumer comes to be
    LEAVE = "leave"
    PRODUCE = "produce"
    CLAIM = "claim"
    SETTLE = "settle"
    EXTEND = "extend"
    SEEK = "seek"
    REDRIVE = "redrive"  # a dead letter is to be tried again
    RETRY_NOW = "retry now"  # what waits for its next attempt is to be tried now
    DISCARD = "discard"  # a dead letter is to be deleted


class Told(StrEnum):
    OK = "ok"
    REFUSED = "refused"
    ALREADY = "already"  # refused, for this lease has done just that before
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One request for one message (or reader), and its answer."""

    op: Op
    told: Told
    began: int
    ended: int
    began_ms: int = 0
    ended_ms: int = 0
    reader: str = ""
    label: str = ""
    message_id: str = ""
    token: str = ""
    attempt: int = 0  # REDRIVE: how many there were before
    lane: bool = False  # CLAIM: from the retry lane
    lease_ms: int = 0  # CLAIM, EXTEND: how long the lease was asked for
    fate: str = ""  # SETTLE: SUCCESS, RETRY, RELEASED (nothing was attempted) or DEAD
    delay_ms: int = 0  # SETTLE as RETRY or BACK
    expires: bool = False  # PRODUCE: with a time after which it is dropped
    later: bool = False  # PRODUCE: it comes into the log some time after the answer
    unit: str = ""  # PRODUCE: what it is ordered by
    tag: str = ""
    dedup_id: str = ""
    begin: str = "earliest"  # JOIN, SEEK: earliest, latest, or since some moment
    serial: bool = False  # JOIN
    tags: tuple[str, ...] | None = None
    max_attempts: int = 16

    @property
    def maybe(self) -> bool:
        """Did it happen, or is that unknown?"""
        return self.told not in (Told.REFUSED, Told.ALREADY)

    @property
    def deadline_ms(self) -> int:
        """The least time until which a lease asked for by this event is valid."""
        return self.began_ms + self.lease_ms


class Kind(StrEnum):
    LOST = "lost"
    UNEXPECTED = "unexpected"
    DUPLICATED = "duplicated"
    OVERLAPPING = "overlapping"
    OUT_OF_ORDER = "out of order"
    SETTLED_TWICE = "settled twice"
    AFTER_ACK = "delivered after ack"
    ATTEMPT = "attempt number"
    EARLY = "early"
    FENCE = "old token accepted"
    DISHONEST = "dishonest answer"
    LETTER = "dead letter"
    LEFT = "left over"


_OF_DELIVERIES = {Op.CLAIM, Op.SETTLE, Op.EXTEND, Op.REDRIVE, Op.RETRY_NOW, Op.DISCARD}


@dataclass(frozen=True, slots=True)
class Violation:
    kind: Kind
    about: str


@dataclass(frozen=True, slots=True)
class Final:
    """What the store holds in the end: where each label stands, and how each reader that is left is with it."""

    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    statuses: Mapping[tuple[str, str], str | None] = field(default_factory=dict)  # (reader, message id)
    letters: frozenset[tuple[str, str]] = frozenset()  # the dead letters: (reader, message id)
    spots: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # shard and offset by message id
    left: tuple[str, ...] = ()  # what should not be there in the end: timers, entries of lanes, a backlog

    @property
    def readers(self) -> set[str]:
        return {reader for reader, _ in self.statuses}


class Delivery:
    """All that happened to one message for one reader between two seeks, in order."""

    def __init__(self, reader: str, message_id: str, events: Iterable[Event], skew_ms: int = 0) -> None:
        self.skew_ms = skew_ms
        self.reader, self.message_id = reader, message_id
        self.about = f"{message_id} for {reader}"
        in_order = sorted(events, key=lambda e: e.began)
        self.claims = [e for e in in_order if e.op is Op.CLAIM]
        self.settles = [e for e in in_order if e.op is Op.SETTLE]
        self.extends = [e for e in in_order if e.op is Op.EXTEND]
        self.redrives = [e for e in in_order if e.op is Op.REDRIVE and e.maybe]
        self.retries_now = [e for e in in_order if e.op is Op.RETRY_NOW and e.maybe]
        self.discards = [e for e in in_order if e.op is Op.DISCARD and e.maybe]

    def may_be_redriven(self, after: Event, before: Event) -> bool:
        """May the message have begun a new life between the two?"""
        return any(after.began < r.ended and r.began < before.ended for r in self.redrives)

    def earlier_attempts(self, before: int = NEVER) -> int:
        """How many attempts were made in earlier lives, as far as known."""
        return max((r.attempt for r in self.redrives if r.began < before), default=0)

    def answers(self, claim: Event) -> list[Event]:
        """The settlements of this claim that may have happened."""
        return [s for s in self.settles if s.token == claim.token and s.maybe]

    def deadline_ms(self, claim: Event) -> int:
        """The least time until which this claim's lease was valid."""
        extensions = [e for e in self.extends if e.token == claim.token and e.maybe]
        if extensions and all(e.told is Told.OK for e in extensions):
            return extensions[-1].deadline_ms
        return min([claim.deadline_ms, *(e.deadline_ms for e in extensions)])

    def may_be_settled(self, claim: Event, before: int) -> bool:
        """May the lease of this claim have been settled before then?"""
        return any(s.began < before for s in self.answers(claim))

    def may_be_free(self, old: Event, new: Event) -> bool:
        """May the message have been free for the new claim, as far as the old one goes?"""
        return self.may_be_settled(old, new.ended) or self.deadline_ms(old) <= new.ended_ms + self.skew_ms


class Case:
    """A history and its end, indexed."""

    def __init__(self, events: Iterable[Event], final: Final, skew_ms: int = 0) -> None:
        self.skew_ms = skew_ms
        self.events = sorted(events, key=lambda e: e.began)
        self.final = final
        self.produced: defaultdict[str, list[Event]] = defaultdict(list)
        self.starts: defaultdict[str, list[Event]] = defaultdict(list)
        self.leaves: defaultdict[str, list[Event]] = defaultdict(list)
        for event in self.events:
            if event.op is Op.PRODUCE:
                self.produced[event.label].append(event)
            elif event.op in (Op.JOIN, Op.SEEK) and event.maybe:
                self.starts[event.reader].append(event)
            elif event.op is Op.LEAVE and event.maybe:
                self.leaves[event.reader].append(event)
        self.label_of = {i: label for label, ids in final.places.items() for i in ids}

    def of(self, op: Op) -> Iterator[Event]:
        return (e for e in self.events if e.op is op)

    def join(self, reader: str) -> Event:
        """The reader's settings."""
        return next(e for e in self.starts[reader] if e.op is Op.JOIN)

    def seeks(self, reader: str) -> list[Event]:
        return [e for e in self.starts[reader] if e.op is Op.SEEK]

    def era(self, reader: str, event: Event) -> int:
        """How many seeks came before: each begins a new life of the reader."""
        return sum(seek.ended <= event.began for seek in self.seeks(reader))

    @cached_property
    def deliveries(self) -> dict[tuple[str, int, str], Delivery]:
        groups: defaultdict[tuple[str, int, str], list[Event]] = defaultdict(list)
        for event in self.events:
            if event.op in _OF_DELIVERIES and event.message_id:
                groups[event.reader, self.era(event.reader, event), event.message_id].append(event)
        return {key: Delivery(key[0], key[2], events, self.skew_ms) for key, events in groups.items()}

    def unseen_claims(self, reader: str) -> int:
        """Claims whose grants no answer reported. A run's are its group's."""
        group, _, consumer = reader.partition("/")
        return self._unseen[reader] + (self._unseen[group] if consumer else 0)

    @cached_property
    def _unseen(self) -> Counter[str]:
        return Counter(e.reader for e in self.of(Op.CLAIM) if e.told is Told.UNKNOWN)

    def place_of(self, message_id: str) -> tuple[int, int]:
        """Shard and offset of a message. The ids of those that came later do not tell."""
        return self.final.spots.get(message_id) or place_of(message_id)

    def wants(self, reader: str, produce: Event) -> bool:
        tags = self.join(reader).tags
        return tags is None or produce.tag in tags

    def owes(self, reader: str, produce: Event) -> bool:
        """Is the message owed to the reader beyond doubt?"""
        if not self.wants(reader, produce):
            return False
        seeks = self.seeks(reader)
        start = next((s for s in reversed(seeks) if s.told is Told.OK), None)
        start = start or next((s for s in self.starts[reader] if s.told is Told.OK), None)
        if start is None:
            return False
        is_skipped = any(
            s.begin != "earliest" and s.began > start.began and s.ended > produce.began for s in seeks
        )
        return not is_skipped and (start.begin == "earliest" or start.ended < produce.began)

    def is_owed(self, reader: str, message_id: str) -> bool:
        """Is the message with this id owed to the reader, whichever of its produces made it?"""
        produces = self.produced[self.label_of.get(message_id, "")]
        matches = [e for e in produces if e.maybe and e.message_id in ("", message_id)]
        return bool(matches) and all(self.owes(reader, e) for e in matches)

    def may_get(self, reader: str, produce: Event) -> bool:
        """Is there any reading of events by which the reader gets the message?"""
        end = NEVER if produce.told is Told.UNKNOWN or produce.later else produce.ended
        is_joined = any(s.begin != "latest" or s.began < end for s in self.starts[reader])
        return produce.maybe and is_joined and self.wants(reader, produce)


@cache
def place_of(message_id: str) -> tuple[int, int]:
    """Shard and offset by the message's id; of one that came later and is nowhere, no place."""
    place = parse_message_id(message_id)
    return (place[1], place[2]) if place else (-1, -1)


def epoch_of(claim: Event) -> int:
    """The epoch a lease was granted under."""
    return from_base32(claim.token.partition(".")[0])
