"""Measures the backlog of topics with an `alarm_backlog`, and of groups with `metrics`, every minute.

A topic in which no shard's tail has moved costs half a read unit per shard and run. Every fifteenth run reads the
cursors in any case, since a seek back changes them without a new message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from ..domain.attention import OF_DESTINATIONS, Attention, Kind
from ..domain.errors import Unavailable
from ..domain.times import DAY_MS
from ..domain.topic import Group, Topic
from ..ports.world import Clock
from ..store import Control, Log, Marks, Rounds
from .walk import HasTime, RoundRobin, Stretch, Trouble

# From a topic and the last offsets of its shards: each group, its backlog (in a broadcast, that of the consumer who
# is furthest behind) and when its oldest message came.
FurthestBehind = Callable[[Topic, Sequence[int]], Iterable[tuple[Group, int, int | None]]]

NoteChanges = Callable[[Sequence[Attention], Sequence[Attention]], None]

_JOB = "watch"
_AFTER_ALL = 2**53  # behind every offset
_WHOLE_EVERY = 15
_UNDER = 0.8


@dataclass(frozen=True, slots=True)
class Backlog:
    """The backlog of the topic's group that is furthest behind. `age_ms` is the age of the oldest message that any of
    its groups owes: one that stands still may owe few."""

    topic: str
    group: str
    messages: int
    age_ms: int
    alarm: int | None

    @property
    def is_over(self) -> bool:
        """Are there more messages than the topic's `alarm_backlog`?"""
        return self.alarm is not None and self.messages > self.alarm

    @property
    def metrics(self) -> dict[str, int]:
        return {"Backlog": self.messages, "OldestAge": self.age_ms // 1000}


@dataclass(slots=True)
class WatchReport:
    """What one run found: of topics with a backlog now or at the last look, those with an alarm, and the groups with
    `metrics` (`metered`); topics whose meters are to be read, topics in trouble, and the states that need a
    person, as they were noted (all are in one list in the store)."""

    backlogs: list[Backlog] = field(default_factory=list)
    metered: list[Backlog] = field(default_factory=list)
    moving: Set[str] = frozenset()
    troubled: Mapping[str, int] = field(default_factory=dict)
    attention: Sequence[Attention] = ()
    stretch: Stretch = field(default_factory=Stretch)

    @property
    def over(self) -> list[Backlog]:
        """Those over their alarm."""
        return [backlog for backlog in self.backlogs if backlog.is_over]


@dataclass(slots=True)
class _Watched:
    """A topic and what the last look showed."""

    topic: Topic
    tails: list[int] = field(default_factory=list)
    backlog: int = 0
    over: list[str] = field(default_factory=list)  # its groups with a backlog over the alarm
    metered: list[Backlog] = field(default_factory=list)  # of its groups with `metrics`
    looks: int = 0


@dataclass(kw_only=True, eq=False, slots=True)
class Watch:
    """Looks at the watched topics. `note_changes` notes states that begin, and takes those off the list that end."""

    control: Control
    log: Log
    marks: Marks
    rounds: Rounds
    clock: Clock
    furthest_behind: FurthestBehind
    note_changes: NoteChanges
    _known: dict[str, _Watched] = field(default_factory=dict, init=False)

    def restore_watch(self, topic: Topic) -> None:
        """Note a topic as watched, if it has an `alarm_backlog`."""
        if topic.alarm_backlog is not None:
            self.marks.watch(topic.name, topic.edition)

    def run_once(self, has_time: HasTime = lambda: True) -> WatchReport:
        """Check each topic, as many as there is time for, beginning with those that the last run did not reach. Errors
        of the store are reported as troubles: the function has more work after this."""
        report = WatchReport()
        try:
            self._look_at_all(report, has_time)
        except Unavailable as error:
            report.stretch.troubles.append(Trouble.of("", error))
        return report

    def _look_at_all(self, report: WatchReport, has_time: HasTime) -> None:
        each_minute = self.marks.each_minute()
        report.moving, report.troubled = each_minute.moving, each_minute.troubled
        report.attention = each_minute.attention
        editions = each_minute.watched
        noted = [state for state in report.attention if state.kind == Kind.BACKLOG]
        now_ms = self.clock.now_ms()
        watched = {key.partition("#")[0] for key in editions}
        forgotten = [state for state in report.attention if _is_forgotten(state, editions, now_ms)]
        self.note_changes(forgotten, [])
        known = self._known.copy().items()
        self._known = {name: entry for name, entry in known if name in editions or name in watched}
        if not watched:
            return
        round_robin = RoundRobin(_JOB, self.rounds, self.clock)
        bookmark = self.rounds.bookmark(_JOB)

        def visit(name: str) -> None:
            groups = [key for key in editions if key.startswith(f"{name}#")]
            watch = self._current_entry(name, editions.get(name, 0), groups)
            if watch is None:
                return
            old_backlog = watch.backlog
            backlog = self._look(watch, {state.group for state in noted if state.topic == name})
            if old_backlog or backlog.messages:
                report.metered += watch.metered
                report.backlogs += [backlog] if watch.topic.alarm_backlog is not None else []
            states = [Attention(Kind.BACKLOG, now_ms, name, group, noted_ms=now_ms) for group in watch.over]
            self.note_changes([state for state in noted if state.topic == name], states)

        report.stretch = round_robin.run(watched, bookmark, visit, has_time)
        round_robin.end(bookmark, report.stretch)

    def _current_entry(self, name: str, edition: int, groups: Sequence[str] = ()) -> _Watched | None:
        """What is known of a topic, as it stands now; None where it is to be watched no more. `groups`: the marks of
        its groups with `metrics`."""
        entry = self._known.get(name)
        if entry and entry.topic.edition >= edition and not entry.backlog and entry.looks % _WHOLE_EVERY:
            return entry
        topic = self.control.topic(name)
        if topic is None or (topic.alarm_backlog is None and not groups):
            self._known.pop(name, None)
            for key in (name, *groups):
                self.marks.unwatch(key)
            if topic := self.control.topic(name):  # it was made, or got an alarm, meanwhile
                self.restore_watch(topic)
            return None
        if entry is None or entry.topic.uid != topic.uid:
            entry = self._known[name] = _Watched(topic)
        entry.topic = topic
        return entry

    def _look(self, watch: _Watched, over: Set[str]) -> Backlog:
        """`over`: its groups whose backlog was over the alarm; it ends below 80 %."""
        tails = [self._tail(watch.topic, shard) for shard in watch.topic.shard_numbers]
        has_moved = tails != watch.tails
        watch.tails, watch.looks = tails, watch.looks + 1
        topic, alarm = watch.topic, watch.topic.alarm_backlog
        if not has_moved and not watch.backlog and watch.looks % _WHOLE_EVERY:
            return Backlog(topic.name, "", 0, 0, alarm)
        groups = list(self.furthest_behind(topic, tails))
        now_ms = self.clock.now_ms()
        ages = {group.name: max(0, now_ms - oldest_ms) if oldest_ms else 0 for group, _, oldest_ms in groups}
        each = [Backlog(topic.name, group.name, count, ages[group.name], alarm) for group, count, _ in groups]
        furthest = max(each, key=lambda one: one.messages, default=Backlog(topic.name, "", 0, 0, alarm))
        watch.backlog = furthest.messages
        bound = _AFTER_ALL if alarm is None else alarm
        bounds = {one.group: bound * (_UNDER if one.group in over else 1) for one in each}
        watch.over = [one.group for one in each if one.messages > bounds[one.group]]
        watch.metered = [one for one, (group, _, _) in zip(each, groups, strict=True) if group.metrics]
        return replace(furthest, age_ms=max(ages.values(), default=0))

    def _tail(self, topic: Topic, shard: int) -> int:
        rows = self.log.read_back(topic.shard_key(shard), _AFTER_ALL, 1)
        return rows[0].end - 1 if rows else -1


def _is_forgotten(state: Attention, watched: Mapping[str, int], now_ms: int) -> bool:
    """Is a topic not watched any more, or were messages lost a day ago last?"""
    if state.kind in OF_DESTINATIONS:
        return now_ms - state.since_ms > DAY_MS
    return state.kind == Kind.BACKLOG and state.topic not in watched
