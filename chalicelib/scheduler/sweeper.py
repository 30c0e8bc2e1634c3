"""The sweeper: finds deliveries that nobody is at work on, so that nothing depends on a wake-up having arrived."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from ..domain.cursor import Cursor, expire, returned
from ..domain.segment import ShardKey
from ..domain.topic import Consumer, Group, Topic, cursor_key
from ..modes import POLICIES
from ..ports import Clock, Control, Cursors, Log, Staffed

_PAGE = 8
_FIRST_ROUNDS = 2  # of a new process: who ran before may have died, its leases still open at the first
_LOOKS = 6  # at about half a read unit each: what a run that finds nothing may cost

Wake = Callable[[str], object]
"""Start the delivery of a log shard, named by its partition key."""


@dataclass(slots=True)
class Report:
    """What one run did. `looks` are reads of a cursor or a shard."""

    topics: int = 0
    looks: int = 0
    woken: int = 0
    under_way: int = 0
    finished: bool = True

    def as_dict(self) -> dict[str, int | bool]:
        return asdict(self)


class Sweeper:
    """Goes round all topics, page by page. A run that finds nothing to do stops after a few reads and the next one
    goes on there, so that an idle system costs next to nothing, however many topics it has; one that finds something
    goes all the way round."""

    def __init__(
        self,
        control: Control,
        log: Log,
        cursors: Cursors,
        wake: Wake,
        clock: Clock,
        see: Callable[[Topic], None] = lambda _: None,
    ) -> None:
        """`see` is shown each topic that it comes by."""
        self._control = control
        self._log = log
        self._cursors = cursors
        self._wake = wake
        self._clock = clock
        self._see = see
        self._after: str | None = None
        self._thorough = _FIRST_ROUNDS

    def run_once(self, has_time: Callable[[], bool] = lambda: True) -> Report:
        """One run; `has_time` is asked before each topic."""
        report = Report()
        for topic in self._round(self._after):
            at_rest = not (report.woken or report.under_way or self._thorough)
            if not has_time() or (report.looks >= _LOOKS and at_rest):
                report.finished = False
                break
            report.topics += 1
            self._see(topic)
            for staffed in self._control.staffed(topic):
                if not staffed.group.paused:
                    self._group(topic, staffed, report)
            self._after = topic.name
        else:
            self._thorough = max(0, self._thorough - 1)
        return report

    def _round(self, start: str | None) -> Iterator[Topic]:
        """All topics once, from behind `start` on."""
        after, wrapped = start, start is None
        while True:
            topics = self._control.topics(after, _PAGE, consistent=False)
            for topic in topics:
                if wrapped and start is not None and topic.name > start:
                    return
                yield topic
            if len(topics) == _PAGE:
                after = topics[-1].name
            elif wrapped:
                return
            else:
                after, wrapped = None, True

    def _group(self, topic: Topic, staffed: Staffed, report: Report) -> None:
        group = staffed.group
        called = [c for c in staffed.consumers if c.is_called and c.state == "ACTIVE"]
        for uid in _owners(group, called):
            cursors = self._cursors.of_owner(group.uid, uid)
            report.looks += 1
            for shard in (None, *range(topic.shards)):
                key = cursor_key(topic, group, shard, uid)
                report.looks += 1
                if self._is_forgotten(cursors.get(str(key.shard), Cursor()), key.shard, report):
                    self._wake(str(key.shard))
                    report.woken += 1

    def _is_forgotten(self, cursor: Cursor, shard: ShardKey, report: Report) -> bool:
        """Is there something to claim, and no lease that says that somebody is at work?"""
        now_ms = self._clock.now_ms()
        current = expire(cursor, now_ms)
        if current.leases:
            report.under_way += 1
            return False
        return bool(returned(current, now_ms)) or self._has_more(current, shard)

    def _has_more(self, cursor: Cursor, shard: ShardKey) -> bool:
        """Is there a message that was never claimed? The next one may stand in the middle of a segment."""
        rows = self._log.read(shard, cursor.segment_at, 1)
        if not rows or rows[0].end > cursor.next:
            return bool(rows)
        return bool(self._log.read(shard, cursor.next, 1))  # an old hint


def _owners(group: Group, called: Sequence[Consumer]) -> Sequence[str]:
    if POLICIES[group.mode].per_consumer:
        return [c.uid for c in called]
    return [""] if called else []
