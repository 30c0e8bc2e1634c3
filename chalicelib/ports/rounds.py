"""The progress of scheduled jobs, and the topics that the sweep looks at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from ..domain.mark import Mark
from ..domain.rounds import Bookmark, EachMinute


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
