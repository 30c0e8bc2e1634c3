"""Looks into one topic: which shards and retry lanes have messages that nobody works on? Called by sweeper.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..domain.assignment import Staffed
from ..domain.cursor import Cursor
from ..domain.cursor_transitions import due_spans, lapse
from ..domain.errors import Unavailable
from ..domain.segment import ShardKey
from ..domain.times import HOUR_MS, MINUTE_MS
from ..domain.topic import Consumer, ConsumerState, Group, Topic, cursor_key
from ..modes import POLICIES
from ..ports.world import Clock
from .walk import from_another

if TYPE_CHECKING:
    from ..store.control import Control
    from ..store.cursors import Cursors
    from ..store.log import Log


_AFTER_ALL = 2**53  # behind every offset
_PENDING_MS = HOUR_MS  # so long a subscriber that has not agreed is asked each minute, and then each hour


@dataclass(slots=True)
class Findings:
    """What a look at a topic found: shards and lanes (by the log's partition key) with messages to claim and without
    a run's lease; how many have one; when to look again at the latest (None: never); how many reads it took.
    `is_whole`: there was time for all of it. `refusals`: what the store refused to read; it was not looked at."""

    forgotten: list[str] = field(default_factory=list)
    under_way: int = 0
    next_ms: int | None = None
    looks: int = 0
    is_whole: bool = True
    refusals: list[Unavailable] = field(default_factory=list)

    def look_again_by(self, at_ms: int) -> None:
        """Note that the topic is to be looked at again by `at_ms`; the earliest time counts."""
        self.next_ms = min(at_ms, self.next_ms or at_ms)


class Scout:
    """Looks at shards and lanes of groups with push consumers."""

    def __init__(self, *, control: Control, log: Log, cursors: Cursors, clock: Clock) -> None:
        self._control = control
        self._log = log
        self._cursors = cursors
        self._clock = clock

    def examine(self, topic: Topic, has_time: Callable[[], bool] = lambda: True) -> Findings:
        """Costs half a read unit each for the list of groups, each shard, each cursor owner and each lane."""
        findings = Findings()
        tails = _Tails(self._log, findings.refusals)
        owners: list[tuple[Staffed, str]] = []
        for staffed in self._control.staffed_groups(topic):
            for consumer in staffed.consumers:
                if consumer.state == ConsumerState.PENDING:
                    findings.look_again_by(self._ask_again_ms(consumer))
            targets = [c for c in staffed.consumers if c.is_called and c.state == ConsumerState.ACTIVE]
            owners += [(staffed, uid) for uid in _owners(staffed.group, targets)]
        for staffed, uid in from_another(owners, self._clock.now_ms() // MINUTE_MS):
            if not has_time():
                findings.is_whole = False
                break
            self._owner(topic, staffed, uid, tails, findings)
        findings.looks += tails.looks
        return findings

    def _ask_again_ms(self, consumer: Consumer) -> int:
        now_ms = self._clock.now_ms()
        return now_ms if now_ms - consumer.created_ms < _PENDING_MS else now_ms + _PENDING_MS

    def _owner(self, topic: Topic, staffed: Staffed, uid: str, tails: _Tails, findings: Findings) -> None:
        """Look at the cursors of one owner. A run comes back to its shard before its lease ends; who pulls does not."""
        group = staffed.group
        findings.looks += 1
        try:
            cursors = self._cursors.of_owner(group.uid, uid)
        except Unavailable as error:
            findings.refusals.append(error)
            return
        for number in (None, *range(topic.shards)):
            shard = cursor_key(topic, group, number, uid).shard
            now_ms = self._clock.now_ms()
            cursor = lapse(cursors.get(str(shard), Cursor()), now_ms)
            leases = cursor.leases.values()
            if not all(lease.is_pulled for lease in leases):
                findings.under_way += 1
                findings.look_again_by(min(lease.deadline_ms for lease in leases))
            elif due_spans(cursor, now_ms) or tails.has_more(cursor, shard):
                findings.forgotten.append(str(shard))
                findings.look_again_by(now_ms)
            elif leases or cursor.waiting:
                dues_ms = (span.due_ms for span in cursor.waiting)
                findings.look_again_by(min((*dues_ms, *(lease.deadline_ms for lease in leases))))


class _Tails:
    """The ends of shards, each read once for all groups. One that the store refuses to read has nothing new."""

    def __init__(self, log: Log, refusals: list[Unavailable]) -> None:
        self._log = log
        self._refusals = refusals
        self._ends: dict[ShardKey, int] = {}
        self.looks = 0

    def has_more(self, cursor: Cursor, shard: ShardKey) -> bool:
        """Is there a message that was never claimed?"""
        if shard not in self._ends:
            self._ends[shard] = self._end(shard)
            self.looks += 1
        return self._ends[shard] > cursor.next

    def _end(self, shard: ShardKey) -> int:
        try:
            rows = self._log.read_back(shard, _AFTER_ALL, 1)
        except Unavailable as error:
            self._refusals.append(error)
            return 0
        return rows[0].end if rows else 0


def _owners(group: Group, push_consumers: Sequence[Consumer]) -> Sequence[str]:
    if group.paused:
        return []
    if POLICIES[group.mode].per_consumer:
        return [c.uid for c in push_consumers]
    return [""] if push_consumers else []
