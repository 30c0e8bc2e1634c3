"""A replay: archived messages that are sent again, each once, however often its job runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# The header that names the replay a message came by.
REPLAY_HEADER = "headrace-replay"

# The header that names the archived message it repeats.
REPLAY_OF_HEADER = "headrace-replay-of"


class ReplayState(StrEnum):
    """PENDING until its job begins; FAILED may be run again; DONE is final."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    DONE = "DONE"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class Replay:
    """Which messages of `source` (accepted from `from_ms` on and before `to_ms`) go into the topic `into` (`into_uid`
    distinguishes it from a later topic of that name).

    `group` is the one group that gets them (`group_uid` distinguishes it from an earlier one); None: all. `where` is
    the text of a predicate over their bodies. `rate` is messages a second. `matched` and `sent` are the job's counts
    so far; a dry run only counts.
    """

    id: str
    source: str
    into: str
    created_ms: int
    from_ms: int
    to_ms: int
    rate: int
    into_uid: str | None = None
    group: str | None = None
    group_uid: str | None = None
    tag: str | None = None
    key: str | None = None
    where: str | None = None
    dry_run: bool = False
    state: ReplayState = ReplayState.PENDING
    matched: int | None = None
    sent: int = 0
    error: str | None = None
    changed_ms: int = 0
    version: int = 0


def may_become(now: ReplayState, then: ReplayState) -> bool:
    """May a replay in the state `now` change to the state `then`?"""
    return now is not ReplayState.DONE and then is not ReplayState.PENDING
