"""What scheduled jobs note of topics: their own progress, and marks, the time from which a topic may have messages that
no process is delivering.

A writer marks the topic before it appends to its log, once in a window of two minutes. The windows of different topics
begin at different times, so that busy topics are not all marked at once.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from .attention import Attention
from .times import HOUR_MS

WINDOW_MS = 120_000  # a longer window costs writers less and the sweep more
_AGAIN_MS = 30_000
_SLACK_MS = 60_000  # for a writer that is slow after its mark, and for clocks that differ


class Mark(NamedTuple):
    """A topic, by name, and the time."""

    topic: str
    at_ms: int


def window_of(topic: str, now_ms: int) -> int:
    """When the topic's present window began, the same in all processes."""
    return now_ms - (now_ms + zlib.crc32(topic.encode())) % WINDOW_MS


def repeated_at(now_ms: int) -> int:
    """When to try a failed mark again: after half a minute, at the same time for all processes."""
    return now_ms - now_ms % _AGAIN_MS + 2 * _AGAIN_MS


def complete_until_ms(now_ms: int) -> int:
    """The time up to which marks are complete: every append under such a mark can be read by now."""
    return now_ms - WINDOW_MS - _SLACK_MS


def asked_again_ms(topic: str, since_ms: int, now_ms: int) -> int:
    """When to ask a PENDING consumer, registered at `since_ms`, again: in the next window for an hour, then once an
    hour. All runs at about the same time compute the same value, so that they leave one mark."""
    period_ms = WINDOW_MS if now_ms - since_ms < HOUR_MS else HOUR_MS
    return now_ms - (now_ms + zlib.crc32(topic.encode())) % period_ms + period_ms


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
    is worse. `attention`: the states in which work waits for a person."""

    watched: Mapping[str, int]
    moving: Set[str]
    troubled: Mapping[str, int] = field(default_factory=dict)
    attention: Sequence[Attention] = ()
