"""How well each subscriber answers: what the breaker knows, kept in the process; what all must know, on its row."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from ..domain import breaker
from ..domain.breaker import Health
from ..domain.outcome import Outcome, Verdict
from ..domain.topic import Consumer, Group, Topic
from ..ports import Clock

Save = Callable[[Topic, Group, Consumer, Health], object]
Disable = Callable[[Topic, Group, Consumer, str], object]


class Healths:
    """The subscribers' health as this process has seen it."""

    def __init__(self, save: Save, disable: Disable, clock: Clock) -> None:
        self._save = save
        self._disable = disable
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, Health] = {}

    def allowance(self, consumer: Consumer, full: int) -> int:
        """How many messages may be under way to a consumer: none while its circuit is open, few after that."""
        return breaker.allowance(self._of(consumer), full, self._clock.now_ms())

    def _of(self, consumer: Consumer) -> Health: ...

    def note(self, topic: Topic, group: Group, consumer: Consumer, outcomes: Sequence[Outcome]) -> None:
        """Enter what one request to a consumer showed; its row is written only when the circuit changes."""
        verdicts = {outcome.verdict for outcome in outcomes}
        if Verdict.GONE in verdicts:
            self._disable(topic, group, consumer, "it answered 410 Gone")
        elif verdicts - {Verdict.HELD}:
            ...
