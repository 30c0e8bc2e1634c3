"""Which reader is owed what: lives of topics, groups and consumers, what each accepted, and what was given."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from chalicelib.domain.message import Draft
from chalicelib.domain.topic import Group, Offline, Topic
from chalicelib.domain.transaction import TransactionState
from chalicelib.services.core.catalog import CACHE_MS

KNOWN_AFTER_MS = CACHE_MS + 1_000
"""After so long every process knows of a change."""


@dataclass(slots=True)
class Absence:
    """Does a broadcast skip what comes while a consumer is away? What holds when the consumer comes back decides. Until
    `perhaps_until_ms` a process may skip it; from `surely_from_ms` on each does."""

    perhaps_until_ms: float = 0
    surely_from_ms: float = math.inf

    def changes(self, policy: Offline, now_ms: int, *, is_certain: bool) -> None:
        """The group was set to this; if it is not certain, perhaps."""
        if policy is Offline.SKIP:
            self.perhaps_until_ms = math.inf
            if is_certain:
                self.surely_from_ms = min(self.surely_from_ms, now_ms + KNOWN_AFTER_MS)
            return
        self.surely_from_ms = math.inf
        if is_certain:
            self.perhaps_until_ms = min(self.perhaps_until_ms, now_ms + KNOWN_AFTER_MS)


@dataclass(slots=True)
class Member:
    """A life of a group, or of a broadcast's consumer: from its creation, or its last seek, to its deletion.

    It is owed what came after it and, if `from_ms` says so, what came since then; where it is `loose`, how much of the
    latter is unknown. `before` is what a seek found in flight: that may come once more than it should."""

    group: Group
    since: int  # by the number of things that had happened
    since_ms: int
    from_ms: int | None = None
    consumer: str = ""
    is_called: bool = False
    loose: bool = False
    absence: Absence = field(default_factory=Absence)
    seen_ms: int = 0  # when it surely showed life,
    perhaps_seen_ms: int = 0  # and when perhaps
    leased_until_ms: int = 0  # perhaps: who holds a lease is not away
    missed: set[str] = field(default_factory=set)  # what it surely skipped
    done: set[str] = field(default_factory=set)
    perhaps: set[str] = field(default_factory=set)  # acknowledged, but the answer was lost
    given: set[str] = field(default_factory=set)
    before: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)  # what it may have skipped, for it was away
    filters: list[tuple[str, ...] | None] = field(default_factory=lambda: [None])  # that it may have had

    @property
    def name(self) -> str:
        return f"{self.group.name}/{self.consumer}" if self.consumer else self.group.name

    def wants(self, tag: str | None) -> Iterator[bool]:
        """Does it, by each filter that it may have had?"""
        return (tags is None or tag in tags for tags in self.filters)

    def begins_anew(self, since: int, since_ms: int) -> None:
        """A seek: what was done may come again."""
        self.before |= self.given - self.done
        self.done, self.perhaps, self.given = set(), set(), set()
        self.since, self.since_ms, self.loose = since, since_ms, False


@dataclass(frozen=True, slots=True)
class Accepted:
    """When a message was accepted: after how many things, at what time, and when it was due. `waited`: it is unknown
    when it entered the log."""

    number: int
    at_ms: int
    due_ms: int
    waited: bool
    id: str = ""


@dataclass(slots=True)
class Home:
    """A life of a topic, and what it has accepted, by label. `bodies` are those that a message may have after an edit;
    it is unknown whether what is `unsure` will come."""

    topic: Topic
    shortest_days: int | float
    members: dict[str, Member] = field(default_factory=dict)
    ghosts: list[Member] = field(default_factory=list)
    accepted: dict[str, Accepted] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    bodies: dict[str, set[str]] = field(default_factory=dict)
    drafts: dict[str, Draft] = field(default_factory=dict)  # as they were sent, of those that must come so
    cancelled: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)  # over the rate limit
    rate_since_ms: int = 0  # when the rate limit was set
    sent_ms: int = 0  # when a producer last sent something
    absences: dict[str, Absence] = field(default_factory=dict)  # by groups


@dataclass(slots=True)
class Deal:
    """A message in a transaction, and the decision to make; `asked`: the decision may have been sent already."""

    home: Home
    label: str
    truth: TransactionState
    prepared: int
    prepared_ms: int
    due_ms: int
    asked: bool = False
