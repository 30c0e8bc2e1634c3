"""How well each subscriber answers: what the breaker saw is kept in the process, what all must know on its row."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from ..domain import breaker
from ..domain.breaker import Health
from ..domain.outcome import Outcome, Verdict
from ..domain.topic import Consumer, Group, Topic
from ..ports import Clock

Save = Callable[[Topic, Group, Consumer, Health], object]
"""Write a consumer's failing_ms, open_until_ms and trips to its registration."""
Disable = Callable[[Topic, Group, Consumer, str], object]
_Row = tuple[int | None, int | None, int]


class Healths:
    """The subscribers' health as this process has seen it."""

    def __init__(self, save: Save, disable: Disable, clock: Clock) -> None:
        self._save = save
        self._disable = disable
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[_Row, Health]] = {}

    def allowance(self, consumer: Consumer, full: int) -> int:
        """How many messages may be under way to a consumer: none while its circuit is open, few after that."""
        return breaker.allowance(self._health(consumer), full, self._clock.now_ms())

    def note(
        self, topic: Topic, group: Group, consumer: Consumer, outcomes: Sequence[Outcome], full: int
    ) -> None:
        """Enter what one request to a consumer showed. Its row is written only when the circuit changes, or when
        failures begin or end."""
        verdicts = {outcome.verdict for outcome in outcomes}
        if Verdict.GONE in verdicts:
            self._disable(topic, group, consumer, "It answered 410 Gone.")
        elif verdicts - {Verdict.HELD}:
            ok = bool(verdicts & {Verdict.DONE, Verdict.REFUSED})
            with self._lock:
                before = self._health(consumer)
                after = breaker.after(before, ok, self._clock.now_ms(), full)
                self._seen[consumer.uid] = (_row(after), after)
            if _row(after) != _row(before):
                self._save(topic, group, consumer, after)
            if breaker.should_disable(after.failing_ms, self._clock.now_ms()):
                self._disable(topic, group, consumer, "Every attempt failed for days.")

    def _health(self, consumer: Consumer) -> Health:
        """What this process saw, in the light of what the row says if others wrote it since."""
        row = (consumer.failing_ms, consumer.open_until_ms, consumer.trips)
        seen, health = self._seen.get(consumer.uid, ((None, None, 0), Health()))
        if row == seen:
            return health
        failing_ms, open_until_ms, trips = row
        return replace(health, failing_ms=failing_ms, open_until_ms=open_until_ms, trips=trips)


def _row(health: Health) -> _Row:
    return health.failing_ms, health.open_until_ms, health.trips
