"""What is to be told: destinations' messages and operational events, as timers for the transaction that they belong
to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...domain import notice
from ...domain.attention import Attention
from ...domain.notice import Events
from ...domain.record import Record
from ...domain.status import Status
from ...domain.timer import Timer
from ...domain.times import MINUTE_MS
from ...domain.topic import Group, Topic
from ...ports.world import Clock
from .expiring_cache import TtlCache

if TYPE_CHECKING:
    from ...store.control import Control
    from ...store.marks import Marks


class Outbox:
    """Makes them. It reads where events go when there is one, once a minute in a process."""

    def __init__(self, *, control: Control, marks: Marks, clock: Clock) -> None:
        self._control = control
        self._marks = marks
        self._clock = clock
        self._events: TtlCache[str, list[Events]] = TtlCache(clock, MINUTE_MS)

    def events(self) -> Events | None:
        """Where events go, as known for up to a minute; None: nowhere."""
        known = self._events.get("")
        if known is None:
            with self._events.calling("") as call:
                stored = self._control.events(consistent=False)
                known = call.keep([stored] if stored else [])
        return known[0] if known else None

    def forget(self) -> None:
        """Where events go has changed."""
        self._events.drop("")

    def timers(self, topic: Topic, group: Group, ended: Sequence[Record]) -> list[Timer]:
        """The timers about deliveries that end; each record has its message."""
        events = self.events() if any(record.status == Status.DEAD for record in ended) else None
        return notice.timers(topic, group, ended, events)

    def note_changes(self, old: Sequence[Attention], new: Sequence[Attention]) -> None:
        """As `Marks.note_changes`, with an event for each state that begins or ends."""
        before, now = ({state.key for state in states} for states in (old, new))
        is_told = any(state.kind in notice.OF_STATE for state in (*old, *new)) and before != now
        events, now_ms = self.events() if is_told else None, self._clock.now_ms()

        def timer_of(state: Attention, is_over: bool) -> Timer | None:
            return notice.of_state(events, state, is_over, now_ms) if events else None

        self._marks.note_changes(old, new, timer_of)
