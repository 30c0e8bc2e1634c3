"""What makes rows out of a window's journal. What is decided about them is the same for every engine (day.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from glue_jobs.archiving.window import Window
from glue_jobs.common.failures import JobError
from glue_jobs.common.manifest import Manifest, Part
from glue_jobs.common.ranges import Ranges, size
from glue_jobs.common.schemas import TABLES

Gap = tuple[str, int, int, int]
"""The shard (the log's partition key), first and last offset; a gap without an end goes on to what was accepted by the
time (ms) that is the fourth."""

ENDLESS = -1

AUTO, ARROW, SPARK = ENGINES = ("auto", "arrow", "spark")
"""What the archive's job can be told: what fits its size, Arrow as far as it can, or Spark in any case."""


class Unusual(JobError):
    """An engine leaves this window to the one that can do everything; its text says why."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`prefix`: of the tables where what is missing is looked for (None: nowhere). `rows_per_file`: about the most.
    `lateness_minutes`: how long after its end a window's data may come. `edits`: whether those that the journal
    lacks are looked for, too."""

    prefix: str | None
    region: str
    rows_per_file: int
    grace_ms: int
    now_ms: int
    lateness_minutes: int = 0
    edits: bool = False

    def read_ms(self, window: Window) -> int:
        """When the window's journal was read, for its manifest: while late data may come, that is before its end."""
        if window.is_closed(datetime.fromtimestamp(self.now_ms / 1000, UTC), self.lateness_minutes):
            return self.now_ms
        return min(self.now_ms, int(window.end.timestamp() * 1000) - 1)


@dataclass(slots=True)
class Topic:
    """A topic's rows: how many there are, and the exclusive or of their hashes."""

    rows: int = 0
    checksum: int = 0

    def add(self, rows: int, checksum: int) -> None:
        """Count more rows, which have this checksum."""
        self.rows += rows
        self.checksum ^= checksum


@dataclass(frozen=True, slots=True)
class Scan:
    """What a window has of messages, by shard and by topic. `offsets` is how many all its ranges have."""

    ranges: Mapping[str, Ranges]
    places: Mapping[str, tuple[str, str, int]]
    voids: Mapping[str, int]
    topics: Mapping[str, Topic]

    @property
    def offsets(self) -> int:
        return sum(map(size, self.ranges.values()))

    @property
    def rows(self) -> int:
        """Those and voids: as many as offsets, if each has one."""
        return sum(topic.rows for topic in self.topics.values()) + sum(self.voids.values())


@dataclass(frozen=True, slots=True)
class AttemptCount:
    """What the journal has of a group's attempts on a shard: the first offset, and how many (or more)."""

    topic: str
    topic_uid: str
    shard: int
    group_uid: str | None
    first: int
    count: int

    @property
    def shard_key(self) -> str:
        return shard_key(self.topic, self.topic_uid, self.shard)


@dataclass(frozen=True, slots=True)
class Written:
    """The messages that lie aside: how many offsets were written, what the files have, and which bodies are gone."""

    offsets: int
    scan: Scan
    bodies_missing: tuple[str, ...]


class Engine(Protocol):
    """Of one window. It reads the journal as it was when it was made, or when `look_again` was called, or later."""

    @property
    def digest(self) -> str:
        """Tells the journal's objects that were there then."""

    @property
    def damaged_objects(self) -> set[str]:
        """The names of objects that can't be read to the end, as far as they were met."""

    @property
    def damaged_rows(self) -> set[str]:
        """Which rows of DynamoDB can't be read, and why, as far as they were met."""

    def look_again(self, tables: Iterable[str] = TABLES) -> None:
        """The journal of these tables was added to. What has been read of a table must be read anew then: `digest`
        tells its new objects."""

    def write_messages(self, old: Manifest | None) -> Written:
        """Write the messages to a temporary folder. A large body whose file is missing is taken from `old`, the
        archive of the day before this run. Raises TooNew."""

    def neighbour_ranges(self) -> Mapping[str, Ranges]:
        """The offsets that the hours before and after have."""

    def messages(self, scan: Scan) -> dict[str, Part]:
        """The files of messages in the temporary folder, by topic."""

    def attempt_counts(self) -> Sequence[AttemptCount]:
        """The attempts that the journal holds. Raises TooNew."""

    def write_deliveries(
        self, attempt_counts: Sequence[AttemptCount], other_days: Sequence[Manifest]
    ) -> tuple[dict[str, Part], int]:
        """Write the attempts to a temporary folder, with message ids from this window and from other days. Returns
        the files by topic, and how many attempts have no id."""

    def fetch(self, gaps: Sequence[Gap]) -> dict[str, int]:
        """Copy missing offsets from DynamoDB into the journal. Returns how many came, by day."""

    def fetch_edits(self, gaps: Sequence[Gap]) -> dict[str, int]:
        """Copy those of these offsets whose rows were edited, and which the journal lacks in that edition. Returns how
        many came, by day."""

    def fetch_attempts(self, attempt_counts: Sequence[AttemptCount], begin_ms: int, end_ms: int) -> int:
        """Copy the traces of a time that the journal lacks from DynamoDB into it. Returns how many came."""


def shard_key(topic: str, topic_uid: str, shard: int) -> str:
    """The partition key of the shard in the log."""
    return f"{topic}:{topic_uid}/{shard}"
