"""What is known of a window: its settings, its offsets, its attempts, and the gaps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from glue_jobs.archiving.window import Window
from glue_jobs.common.manifest import Table
from glue_jobs.common.ranges import Ranges, size

Gap = tuple[str, int, int, int]
"""The shard (the log's partition key), first and last offset; a gap without an end goes on to what was accepted by the
time (ms) that is the fourth."""

ENDLESS = -1


@dataclass(frozen=True, slots=True)
class Settings:
    """`prefix`: of the tables where what is missing is looked for (None: nowhere). `file_bytes`: about a file's size.
    `lateness_minutes`: how long after its end a window's data may come. `edits`: whether those that the journal
    lacks are looked for, too. `shards`: the log's partition keys of all of them."""

    prefix: str | None
    region: str
    file_bytes: int
    grace_ms: int
    now_ms: int
    lateness_minutes: int = 0
    edits: bool = False
    shards: tuple[str, ...] = ()

    def read_ms(self, window: Window) -> int:
        """When the window's journal was read, for its manifest: while late data may come, that is before its end."""
        if window.is_closed(datetime.fromtimestamp(self.now_ms / 1000, UTC), self.lateness_minutes):
            return self.now_ms
        return min(self.now_ms, int(window.end.timestamp() * 1000) - 1)


@dataclass(frozen=True, slots=True)
class Scan:
    """What a window has of messages, by shard: the offsets, the topic, its life and the number, and how many offsets
    have no row."""

    ranges: Mapping[str, Ranges]
    places: Mapping[str, tuple[str, str, int]]
    voids: Mapping[str, int]

    @property
    def offsets(self) -> int:
        """How many all ranges have."""
        return sum(map(size, self.ranges.values()))


@dataclass(frozen=True, slots=True)
class AttemptCount:
    """What the journal has of a group's attempts on a shard: the first offset, and ranges of offsets with all of them
    (transforms.STRETCH)."""

    topic: str
    topic_uid: str
    shard: int
    group_uid: str | None
    first: int
    stretches: Ranges

    @property
    def shard_key(self) -> str:
        return shard_key(self.topic, self.topic_uid, self.shard)


@dataclass(frozen=True, slots=True)
class Written:
    """The messages that were written: how many offsets, what the files have, and which bodies are gone."""

    offsets: int
    scan: Scan
    table: Table
    bodies_missing: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Those of the files and voids: as many as offsets, if each has one."""
        return self.table.rows + sum(self.scan.voids.values())


def shard_key(topic: str, topic_uid: str, shard: int) -> str:
    """The partition key of the shard in the log."""
    return f"{topic}:{topic_uid}/{shard}"
