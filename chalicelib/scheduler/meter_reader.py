"""The meter reader: each minute, reads the meters of topics in use, for charts of their rates.

The function that reads the log's stream notes each topic with a new row, outside the path of a message. A topic whose
meters show the same twice is idle, and is not read any more, so an idle stage costs nothing: noted topics are in the
list of watched topics, which is read anyway.

When a topic becomes idle, and now and then while it is in use, the reader checks it for troubles, and for states in
which work waits for a person. It notes them in the same list; each run checks a few of the noted topics again.

In a topic that moves it also settles the messages that a group does not get: they are no backlog of a group that
receives seldom.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field

from ..domain import meter
from ..domain.attention import OF_OTHERS, Attention
from ..domain.errors import Unavailable
from ..domain.meter import GroupReading, Reading
from ..domain.times import DAY_MS
from ..domain.topic import Topic
from ..store import Control, Marks, Readings
from .walk import HasTime

_MOST_TOPICS = 2_000  # whose last reading a process remembers
_LOOK_EVERY_MS = 300_000  # while a topic moves; so long, too, one that shows the same may be undecided
_LOOKED_AGAIN = 8


@dataclass(frozen=True, slots=True)
class State:
    """How bad the worst thing is that is wrong with a topic (0: nothing), whether something lies in it, and the states
    in which work waits for a person (without those that the watch measures)."""

    trouble: int
    has_backlog: bool
    attention: Sequence[Attention] = ()


_NOTHING = State(0, has_backlog=False)

Read = Callable[[Topic], Reading]
See = Callable[[Topic], State]
NoteChanges = Callable[[Sequence[Attention], Sequence[Attention]], None]
# Settle what the groups of a topic do not get, where the reading shows a backlog, up to the first message that they
# get.
SettleUnwanted = Callable[[Topic, Reading, HasTime], None]


@dataclass(slots=True)
class _Known:
    """The last reading of a topic, when the last one of each level was, when it last moved and was looked at."""

    uid: str
    reading: Reading | None = None
    last_ms: dict[str, int] = field(default_factory=dict)
    moved_ms: int = 0
    looked_ms: int = 0


def _rises(before: Reading, now: Reading) -> Counter[str]:
    """By how much meters have risen. One that was set back (a seek, another group of this name) did not."""
    rises = Counter(accepted=now.accepted - before.accepted)
    for name, group in now.groups.items():
        old = before.groups.get(name, GroupReading(0, 0))
        rises += Counter(settled=group.settled - old.settled, retried=group.retried - old.retried)
    return +rises


def _on_top_of(before: Reading, sums: Counter[str], at_ms: int) -> Reading:
    """The sum of all that was read so far, as a reading of one group without a name."""
    old = before.groups.get("", GroupReading(0, 0))
    group = GroupReading(old.settled + sums["settled"], 0, old.retried + sums["retried"])
    return Reading(at_ms, before.accepted + sums["accepted"], {"": group})


@dataclass(kw_only=True, eq=False, slots=True)
class MeterReader:
    """Reads the topics that were noted. `note_changes`: as `Marks.note_changes`."""

    control: Control
    marks: Marks
    readings: Readings
    read: Read
    see: See
    settle_unwanted: SettleUnwanted
    note_changes: NoteChanges
    _troubled: Mapping[str, int] = field(default_factory=dict, init=False)
    _attention: dict[str, list[Attention]] = field(default_factory=dict, init=False)  # by topic
    _passes: int = field(default=0, init=False)
    _turns: dict[str, int] = field(default_factory=dict, init=False)  # by topic: its last turn, read or not
    _turn: int = field(default=0, init=False)
    _sum: Counter[str] = field(default_factory=Counter, init=False)
    _read_ms: int = field(default=0, init=False)
    _unkept: Counter[str] = field(default_factory=Counter, init=False)  # without an answer, as `_attempt`
    _attempt: Reading | None = field(default=None, init=False)
    _known: dict[str, _Known] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def run_once(
        self,
        moving_topics: Set[str],
        has_time: HasTime = lambda: True,
        troubled_topics: Mapping[str, int] | None = None,
        attention: Sequence[Attention] = (),
    ) -> int:
        """Read each, or as many as there is time for, those first that had no turn for longest; how many.
        `troubled_topics` are those with which something was wrong, `attention` the states, as they are noted. What the
        store refuses is left to the topic's next turn. Of two runs at once the second waits for the first."""
        with self._lock:
            self._troubled, self._attention = troubled_topics or {}, {}
            for state in attention:
                if state.topic and state.kind not in OF_OTHERS:
                    self._attention.setdefault(state.topic, []).append(state)
            return self._run(moving_topics, has_time)

    def _run(self, moving_topics: Set[str], has_time: HasTime) -> int:
        number = 0
        self._turns = {name: self._turns.get(name, 0) for name in sorted(moving_topics)}
        for name in sorted(self._turns, key=self._turns.__getitem__):
            if not has_time():
                break
            self._turn += 1
            self._turns[name] = self._turn
            with suppress(Unavailable):
                self._visit(name, has_time)
            number += 1
        noted_topics = sorted({*self._troubled, *self._attention} - moving_topics)
        first = self._passes * _LOOKED_AGAIN % max(1, len(noted_topics))
        self._passes += 1
        for name in noted_topics[first : first + _LOOKED_AGAIN]:
            if has_time():
                with suppress(Unavailable):
                    self._look_again(name)
        with suppress(Unavailable):
            self._add_up()
        return number

    def _add_up(self) -> None:
        """Keep the stage's own meters, which rise by what was seen since: a write in a minute in which any did. One
        whose answer was lost may be there: then its sums are not added again."""
        if not self._sum and not self._unkept:
            return
        before = next(iter(self.readings.latest(meter.STAGE, meter.HOURS, 1)), Reading(0, 0))
        if before == self._attempt:
            self._unkept = Counter()
        self._unkept += self._sum
        self._sum, self._attempt = Counter(), None
        if self._unkept:
            self._attempt = _on_top_of(before, self._unkept, self._read_ms)
            self.readings.keep(meter.STAGE, meter.HOURS, self._attempt)
            self._unkept, self._attempt = Counter(), None

    def _look_again(self, name: str) -> None:
        topic = self.control.topic(name, consistent=False)
        self._note(name, self.see(topic) if topic else _NOTHING)

    def _note(self, name: str, state: State) -> None:
        before = self._troubled.get(name, 0)
        if state.trouble != before:
            self.marks.note_trouble(name, state.trouble, before)
        self.note_changes(self._attention.get(name, ()), state.attention)

    def _visit(self, name: str, has_time: HasTime) -> None:
        topic = self.control.topic(name, consistent=False)
        entry = self._known.pop(name, None)
        if topic is None:
            self.marks.note_at_rest(name)
            self._note(name, _NOTHING)
            return
        if entry is None or entry.uid != topic.uid:
            entry = self._read_entry(topic.uid)
        self._known[name] = entry  # behind all others
        while len(self._known) > _MOST_TOPICS:
            del self._known[next(iter(self._known))]
        reading = self.read(topic)
        is_same = entry.reading is not None and not reading.shows_more_than(entry.reading)
        entry.moved_ms = entry.moved_ms if is_same else reading.at_ms
        level = meter.level_of(entry.last_ms, reading.at_ms)
        if level:
            self.readings.keep(topic.uid, level, reading)
            entry.last_ms[level.name] = reading.at_ms
        is_new = reading.at_ms - topic.created_ms < DAY_MS  # before its first reading it showed nothing
        self._sum += _rises(entry.reading or (Reading(0, 0) if is_new else reading), reading)
        self._read_ms = reading.at_ms
        entry.reading = reading
        if not is_same:
            self.settle_unwanted(topic, reading, has_time)
        if self._is_at_rest(topic, entry, reading.at_ms, is_same=is_same):
            self.marks.note_at_rest(name)  # last: what was not kept is read again

    def _is_at_rest(self, topic: Topic, last_known: _Known, at_ms: int, *, is_same: bool) -> bool:
        """Is nothing to be seen of it for now? Not while something lies in it that may be in order yet, or not."""
        if not is_same and at_ms - last_known.looked_ms < _LOOK_EVERY_MS:
            return False
        state = self.see(topic)
        last_known.looked_ms = at_ms
        self._note(topic.name, state)
        is_clear = bool(state.trouble) or not state.has_backlog
        return is_same and (is_clear or at_ms - last_known.moved_ms >= _LOOK_EVERY_MS)

    def _read_entry(self, uid: str) -> _Known:
        """What another process knew of a topic."""
        entry = _Known(uid)
        for level in meter.LEVELS:
            for reading in self.readings.latest(uid, level, 1):
                entry.last_ms[level.name] = reading.at_ms
                if entry.reading is None or reading.at_ms > entry.reading.at_ms:
                    entry.reading = reading
        return entry
