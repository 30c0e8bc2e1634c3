"""A day in the archive, as its manifest says: which topics it has, and whether it is complete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

WHOLE_DAY = 24


class Proof(StrEnum):
    """What is known of a topic's messages of a day."""

    PROVED = "PROVED"  # the day is closed, and each of its offsets is accounted for
    OPEN = "OPEN"  # more of the day may come
    HOLES = "HOLES"  # some offsets were found nowhere


@dataclass(frozen=True, slots=True)
class TopicDay:
    """A topic's part of a day: rows of both tables, and how many offsets were found nowhere."""

    messages: int = 0
    deliveries: int = 0
    missing: int = 0


@dataclass(kw_only=True, frozen=True, slots=True)
class ArchivedDay:
    """A day that has a manifest. `until_hour` is the end of the hours that are in it; it holds what came until
    `known_until_ms`, and `is_closed` if that is the end of the day. `damaged` journal objects could not be read,
    `bodies_missing` large bodies were not there."""

    day: str
    until_hour: int
    written_ms: int
    known_until_ms: int
    is_closed: bool
    damaged: int = 0
    bodies_missing: int = 0
    topics: Mapping[str, TopicDay] = field(default_factory=dict)

    def proof(self, topic: TopicDay) -> Proof:
        """What is known of one of its topics."""
        if topic.missing or self.damaged:
            return Proof.HOLES
        return Proof.PROVED if self.is_closed else Proof.OPEN
