"""The progress of scheduled jobs, and the topics that they look at each minute."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field


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
    """The topics that some job looks at each minute, by name. `watched`: those with a backlog alarm, with the
    edition of their settings. `moving`: those whose meters are read. `troubled`: those in trouble; a higher number
    is worse."""

    watched: Mapping[str, int]
    moving: Set[str]
    troubled: Mapping[str, int] = field(default_factory=dict)
