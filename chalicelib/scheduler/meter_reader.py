"""The meter reader: reads the meters of topics in which something moves, each minute, for charts of their rates.

Whoever sees a new row of the log notes its topic: off the road that a message takes. A topic that shows the same twice
is at rest, and read no more. So a stage at rest costs nothing: the noted topics stand in the list of the watched ones,
which is read anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ..domain import meter
from ..domain.errors import Unavailable
from ..domain.meter import Reading
from ..domain.topic import Topic
from ..ports.control import Control
from ..ports.readings import Readings
from ..ports.rounds import Marks
from .walk import HasTime

_MOST_TOPICS = 2_000  # whose last reading a process remembers
Read = Callable[[Topic], Reading]


@dataclass(slots=True)
class _Known:
    """The last reading of a topic, and when the last one of each level was."""

    uid: str
    reading: Reading | None = None
    last_ms: dict[str, int] = field(default_factory=dict)


class MeterReader:
    """Reads the topics that were noted."""

    def __init__(self, control: Control, marks: Marks, readings: Readings, read: Read) -> None:
        self._control = control
        self._marks = marks
        self._readings = readings
        self._read = read
        self._known: dict[str, _Known] = {}

    def run_once(self, moving: Iterable[str], has_time: HasTime = lambda: True) -> int:
        """Read each, or as many as there is time for, those first that were not read for longest; how many."""
        number = 0
        for name in sorted(moving, key=self._read_ms):
            if not has_time():
                break
            self._visit(name)
            number += 1
        return number

    def _read_ms(self, name: str) -> int:
        known = self._known.get(name)
        return known.reading.at_ms if known and known.reading else 0

    def _visit(self, name: str) -> None:
        topic = self._control.topic(name, consistent=False)
        known = self._known.pop(name, None)
        if topic is None:
            self._marks.rests(name)
            return
        if known is None or known.uid != topic.uid:
            known = self._stored(topic.uid)
        self._known[name] = known  # behind all others
        while len(self._known) > _MOST_TOPICS:
            del self._known[next(iter(self._known))]
        try:
            reading = self._read(topic)
        except Unavailable:
            return  # the next run reads it
        if known.reading and not reading.shows_more_than(known.reading):
            self._marks.rests(name)
        level = meter.level_of(known.last_ms, reading.at_ms)
        if level:
            self._readings.keep(topic.uid, level, reading)
            known.last_ms[level.name] = reading.at_ms
        known.reading = reading

    def _stored(self, uid: str) -> _Known:
        """What another process knew of a topic."""
        known = _Known(uid)
        for level in meter.LEVELS:
            for reading in self._readings.latest(uid, level, 1):
                known.last_ms[level.name] = reading.at_ms
                if known.reading is None or reading.at_ms > known.reading.at_ms:
                    known.reading = reading
        return known
