"""The function `sweep`: finds messages that no run works on, so a lost wake-up only delays delivery.

It visits marked topics only (domain/mark), so idle topics cost nothing. When a mark's window is over and the topic
has nothing to deliver, the mark is dropped; otherwise the topic gets a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cache, partial

from ..domain.assignment import Staffed
from ..domain.cursor import Cursor
from ..domain.cursor_transitions import due_spans, lapse
from ..domain.errors import Unavailable
from ..domain.mark import Mark, complete_until_ms
from ..domain.segment import ShardKey
from ..domain.times import HOUR_MS, MINUTE_MS
from ..domain.topic import Consumer, ConsumerState, Topic, cursor_key
from ..modes import POLICIES
from ..ports.world import Clock
from ..store import Control, Cursors, Log, Marks, Rounds
from .walk import HasTime, Report, RoundRobin, Trouble, Visit, from_another

_JOB = "sweep"

Wake = Callable[[str], object]  # start the delivery of a log shard, named by its partition key


@dataclass(slots=True)
class SweepReport(Report):
    """What one run did. `looks` are reads of a cursor or a shard."""

    looks: int = 0
    woken: int = 0
    under_way: int = 0


@dataclass(kw_only=True, frozen=True, slots=True)
class Sweeper:
    """Visits all marked topics."""

    control: Control
    log: Log
    cursors: Cursors
    marks: Marks
    rounds: Rounds
    wake: Wake
    clock: Clock
    threads: Callable[[], Executor]

    def run_once(self, has_time: HasTime = lambda: True) -> SweepReport:
        """One run. `has_time` is asked before each topic, and before each consumer of a broadcast in it."""
        report, now_ms = SweepReport(), self.clock.now_ms()
        round_robin = RoundRobin(_JOB, self.rounds, self.clock)
        bookmark = self.rounds.bookmark(_JOB)
        if bookmark.passed_ms > now_ms:  # set by a clock that was ahead: what is marked now lies before it
            bookmark = replace(bookmark, passed_ms=0)
        unfinished: list[Trouble] = []  # of topics that keep their marks
        marks = _Marked(self.marks, bookmark.passed_ms, now_ms)

        def look(name: str) -> Visit:
            topic = self.control.topic(name, consistent=False)
            findings = self.examine(topic, has_time) if topic else Findings()
            for shard in findings.forgotten:  # here: to wake takes as long as to look
                self.wake(shard)
            return partial(record_findings, name, findings)

        def record_findings(name: str, findings: Findings) -> bool:
            report.looks += findings.looks
            report.under_way += findings.under_way
            report.woken += len(findings.forgotten)
            if not findings.is_whole:
                unfinished.extend(Trouble.of(name, error) for error in findings.refusals)
                return False
            for error in findings.refusals:
                raise error
            marks.note_looked_at(name, findings.next_ms)
            return True

        with self.threads() as threads:
            report.stretch = round_robin.run_together(marks.newest, bookmark, look, has_time, threads)
        for trouble in report.stretch.troubles:
            marks.note_looked_at(trouble.topic, self.clock.now_ms())
        report.stretch.troubles += unfinished
        round_robin.end(bookmark, report.stretch, marks.passed_ms())
        return report

    def restore_mark(self, topic: Topic, has_time: HasTime) -> None:
        """Mark a topic that has something to deliver, if its mark was lost."""
        findings = self.examine(topic, has_time)
        if findings.next_ms is not None:
            self.marks.mark(Mark(topic.name, findings.next_ms))
        for error in findings.refusals:
            raise error

    def examine(self, topic: Topic, has_time: Callable[[], bool] = lambda: True) -> Findings:
        """Costs half a read unit each for the list of groups, each shard, each cursor owner and each lane."""
        findings = Findings()
        end_of = cache(partial(self._end, findings))
        owners: list[tuple[Staffed, str]] = []
        for staffed in self.control.staffed_groups(topic):
            for consumer in staffed.consumers:
                if consumer.state == ConsumerState.PENDING:
                    findings.look_again_by(self._ask_again_ms(consumer))
            if staffed.group.is_paused(self.clock.now_ms()):
                if ends_ms := staffed.group.pause_ends_ms:
                    findings.look_again_by(ends_ms)
                continue
            targets = [c for c in staffed.consumers if c.is_called and c.state == ConsumerState.ACTIVE]
            is_shared = not POLICIES[staffed.group.mode].per_consumer
            uids = [""] * bool(targets or staffed.group.callbacks) if is_shared else [c.uid for c in targets]
            owners += [(staffed, uid) for uid in uids]
        for staffed, uid in from_another(owners, self.clock.now_ms() // MINUTE_MS):
            if not has_time():
                findings.is_whole = False
                break
            self._owner(topic, staffed, uid, end_of, findings)
        return findings

    def _ask_again_ms(self, consumer: Consumer) -> int:
        now_ms = self.clock.now_ms()
        return now_ms if now_ms - consumer.created_ms < _PENDING_MS else now_ms + _PENDING_MS

    def _owner(
        self, topic: Topic, staffed: Staffed, uid: str, end_of: Callable[[ShardKey], int], findings: Findings
    ) -> None:
        """Look at the cursors of one owner. A run comes back to its shard before its lease ends; who pulls does not."""
        group = staffed.group
        findings.looks += 1
        try:
            cursors = self.cursors.of_owner(group.uid, uid)
        except Unavailable as error:
            findings.refusals.append(error)
            return
        for number in (None, *topic.shard_numbers):
            shard = cursor_key(topic, group, number, uid).shard
            now_ms = self.clock.now_ms()
            cursor = lapse(cursors.get(str(shard), Cursor()), now_ms)
            leases = cursor.leases.values()
            if not all(lease.is_pulled for lease in leases):
                findings.under_way += 1
                findings.look_again_by(min(lease.deadline_ms for lease in leases))
            elif due_spans(cursor, now_ms) or end_of(shard) > cursor.next:
                findings.forgotten.append(str(shard))
                findings.look_again_by(now_ms)
            elif leases or cursor.waiting:
                dues_ms = (span.due_ms for span in cursor.waiting)
                findings.look_again_by(min((*dues_ms, *(lease.deadline_ms for lease in leases))))

    def _end(self, findings: Findings, shard: ShardKey) -> int:
        """Where a shard ends. One that the store refuses to read has nothing new."""
        findings.looks += 1
        try:
            rows = self.log.read_back(shard, _AFTER_ALL, 1)
        except Unavailable as error:
            findings.refusals.append(error)
            return 0
        return rows[0].end if rows else 0


class _Marked:
    """The marked topics of one run: by topic the newest of its marks whose time has come, and the first that is yet to
    come."""

    def __init__(self, marks: Marks, from_ms: int, now_ms: int) -> None:
        self._marks = marks
        self._now_ms = now_ms
        self.newest: dict[str, int] = {}
        self._to_come: dict[str, int] = {}
        self._first_ms: int | None = None
        for mark in marks.since(from_ms):
            if mark.at_ms > now_ms:
                self._to_come.setdefault(mark.topic, mark.at_ms)
                continue
            self._first_ms = mark.at_ms if self._first_ms is None else self._first_ms
            self.newest[mark.topic] = mark.at_ms
        self._kept = dict(self.newest)

    def note_looked_at(self, topic: str, next_ms: int | None) -> None:
        """A topic was looked at, and is to be again by then: let its mark go if its window is over."""
        if self.newest[topic] > complete_until_ms(self._now_ms):
            return
        if next_ms is not None and next_ms < self._to_come.get(topic, next_ms + 1):
            self._marks.mark(Mark(topic, max(next_ms, self._now_ms)))
        self._kept.pop(topic, None)

    def passed_ms(self) -> int:
        """The time up to which all marks are let go. Behind the last window's end, others may still mark."""
        until_ms = min((*self._kept.values(), complete_until_ms(self._now_ms) + 1))
        return until_ms if self._first_ms is not None and self._first_ms < until_ms else 0


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
