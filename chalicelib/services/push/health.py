"""The health of subscribers. Each process has its own view; what all processes must know is stored with the
registration."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from ...domain import breaker
from ...domain.breaker import Health
from ...domain.call_result import CallResult, Verdict
from ...domain.errors import Unavailable
from ...domain.topic import Consumer, Group, Topic
from ...ports.world import Clock
from ..core.expiring_cache import TtlCache

# Write a consumer's failing_ms, open_until_ms and times_opened to its registration, as they follow from what is
# stored there at that moment; None: it was deleted.
Save = Callable[[Topic, Group, Consumer, Callable[[Consumer], Health]], Consumer | None]
Disable = Callable[[Topic, Group, Consumer, str], object]


class SubscriberHealth:
    """The subscribers' health as this process has seen it."""

    def __init__(self, save: Save, disable: Disable, clock: Clock) -> None:
        self._save = save
        self._disable = disable
        self._clock = clock
        self._lock = threading.Lock()
        # With the version of the registration that it is based on.
        self._seen: TtlCache[str, tuple[int, Health]] = TtlCache(clock, None)

    def allowance(self, consumer: Consumer, full: int) -> int:
        """How many messages may be in flight to a consumer: none while its circuit is open, few after that."""
        return breaker.allowance(self._known_health(consumer)[1], full, self._clock.now_ms())

    def open_ms(self, consumer: Consumer) -> int:
        """How much longer its circuit is open."""
        return max(0, (self._known_health(consumer)[1].open_until_ms or 0) - self._clock.now_ms())

    def note(
        self,
        topic: Topic,
        group: Group,
        consumer: Consumer,
        results: Sequence[CallResult],
        full: int,
        *,
        began_ms: int,
        is_repeated: bool = False,
    ) -> None:
        """Note the result of one request, which began at `began_ms`. `is_repeated`: every message in it had failed
        before. The registration is written only when the circuit changes, or when failures begin or end; if that fails
        now, only this process knows."""
        attempts = [r for r in results if r.verdict not in (Verdict.NOT_ATTEMPTED, Verdict.UNDECODABLE)]
        # What a transform refuses was not sent.
        attempts = [r for r in attempts if r.verdict is not Verdict.REFUSED or r.status is not None]
        ok = any(r.verdict in (Verdict.DONE, Verdict.REFUSED) for r in attempts)
        facts = {"is_own_answer": any(r.is_own_answer for r in attempts), "is_repeated": is_repeated}

        def learn(before: Health, now_ms: int) -> Health:
            return breaker.after(before, ok, now_ms, full, began_ms=began_ms, **facts)

        with suppress(Unavailable):
            if any(r.verdict is Verdict.GONE for r in attempts):
                self._disable(topic, group, consumer, "It answered 410 Gone.")
            elif attempts:
                after = self._learn(topic, group, consumer, learn)
                if breaker.should_disable(after.failing_ms, after.times_opened, self._clock.now_ms()):
                    self._disable(topic, group, consumer, "Every attempt failed for days.")

    def _learn(
        self, topic: Topic, group: Group, consumer: Consumer, learn: Callable[[Health, int], Health]
    ) -> Health:
        """The runs of this process take turns here: otherwise several would write the same change. What others have
        stored meanwhile counts: a late failure does not bring back what a new registration has ended."""
        with self._lock:
            version, before = self._known_health(consumer)
            now_ms = self._clock.now_ms()
            after = learn(before, now_ms)
            self._seen.put(consumer.uid, (version, after))

            def learnt(row: Consumer) -> Health:
                nonlocal after
                after = learn(_updated(version, before, row), now_ms)
                return after

            if _row(after) != _row(before) and (row := self._save(topic, group, consumer, learnt)):
                self._seen.put(consumer.uid, (row.version, after))
        return after

    def _at_first(self, consumer: Consumer) -> Health:
        """The health of a consumer that this process has not called yet: good, if it is not new and its registration
        shows no failures."""
        now_ms = self._clock.now_ms()
        is_healthy = consumer.failing_ms is None and now_ms - consumer.created_ms >= breaker.LATELY_MS
        return Health(succeeded_ms=now_ms if is_healthy else None)

    def _known_health(self, consumer: Consumer) -> tuple[int, Health]:
        """This process's view, updated from the registration if another process wrote it since. The given `consumer`
        may be older than this process's own last write."""
        version, health = self._seen.get(consumer.uid) or (-1, self._at_first(consumer))
        return max(version, consumer.version), _updated(version, health, consumer)


def _updated(version: int, health: Health, row: Consumer) -> Health:
    """The health in a registration, if it is newer than the version that `health` is based on."""
    if row.version <= version:
        return health
    return replace(
        health, failing_ms=row.failing_ms, open_until_ms=row.open_until_ms, times_opened=row.times_opened
    )


def _row(health: Health) -> tuple[int | None, int | None, int]:
    return health.failing_ms, health.open_until_ms, health.times_opened
