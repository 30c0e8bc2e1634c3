"""The progress of scheduled jobs, and the topics that the sweep looks at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Protocol

from ..domain.mark import Mark


@dataclass(frozen=True, slots=True)
class Bookmark:
    """How far a scheduled job has come in the list of all topics, which it visits again and again. `after`: the topic
    visited last. `passed_ms`: when it last reached the end of the list (the sweeper: earlier marks are done).
    `is_open`: a run is under way, or died."""

    after: str | None = None
    passed_ms: int = 0
    is_open: bool = False
    version: int = 0


@dataclass(frozen=True, slots=True)
class EachMinute:
    """The topics that some job looks at each minute, by name. `watched`: those with an `alarm_backlog`, with the
    edition of their settings. `moving`: those whose meters are read. `troubled`: those in trouble; a higher number
    is worse."""

    watched: Mapping[str, int]
    moving: Set[str]
    troubled: Mapping[str, int] = field(default_factory=dict)


class Rounds(Protocol):
    """The bookmarks of scheduled jobs: a run goes on where the last one stopped, in any process."""

    def bookmark(self, job: str) -> Bookmark:
        """The job's bookmark, read consistently; one of version 0 if the job never ran."""
        ...

    def keep(self, job: str, bookmark: Bookmark) -> Bookmark | None:
        """Store a bookmark, if the stored one has the same version. Returns it as stored; None: a race was lost."""
        ...


class Marks(Protocol):
    """The topics that jobs look at each minute: marked ones, and those that are watched. By name."""

    def mark(self, mark: Mark) -> None:
        """Store a mark. Harmless to repeat."""
        ...

    def since(self, from_ms: int) -> Iterator[Mark]:
        """Marks of this time and later (also of times to come), the earliest first; it may be a moment old."""
        ...

    def watch(self, topic: str, edition: int) -> None:
        """Have a topic watched, whose settings have this edition."""
        ...

    def unwatch(self, topic: str) -> None:
        """Take a topic off the list of watched ones. Harmless if it is not there."""
        ...

    def note_moving(self, topic: str) -> None:
        """Have a topic's meters read, for something came into it. Harmless to repeat."""
        ...

    def note_at_rest(self, topic: str) -> None:
        """Have them read no more."""
        ...

    def note_trouble(self, topic: str, rank: int, before: int = 0) -> None:
        """Note how bad the worst thing is that is wrong with a topic, from 1 to 9 (0: nothing is), and what was noted
        `before`."""
        ...

    def worst(self, most: int) -> dict[str, int]:
        """The topics that are worst off, the worst first; it may be a moment old."""
        ...

    def each_minute(self) -> EachMinute:
        """All in one read; it may be a moment old."""
        ...
