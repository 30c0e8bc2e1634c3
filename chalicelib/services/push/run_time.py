"""How long attempts and leases may take in one run, and whether there is time for another attempt."""

from __future__ import annotations

from collections.abc import Callable

from ...domain.limits import DEFAULT_URL_SECONDS, MAX_QUICK_SECONDS
from ...domain.topic import Consumer, ConsumerKind
from .sources import Sources

# How much longer than an attempt a lease, and the function, last: the settlement needs time.
MARGIN_SECONDS = 5
_LEAVING_SECONDS = 2  # for what follows the last settlement: the next run, and timers for what is due later


class RunTime:
    """The time of one run. `seconds_left()` is what is left of the function's time."""

    def __init__(self, seconds_left: Callable[[], float]) -> None:
        self.seconds_left = seconds_left
        self.ran_out = False
        self._seconds_at_start = seconds_left()

    def allows_attempt(self, sources: Sources) -> bool:
        """Is there time for an attempt at the slowest consumer? If not, all wait for the next run; otherwise the slow
        ones would wait for ever. The last answer is kept in `ran_out`."""
        seconds = max((self.attempt_seconds(sources, c) for c in sources.called_consumers()), default=0)
        self.ran_out = self.seconds_left() < seconds + MARGIN_SECONDS
        return not self.ran_out

    def allows_settlement(self) -> bool:
        """Is there still time to write a settlement?"""
        return self.seconds_left() >= MARGIN_SECONDS

    def allows_note(self) -> bool:
        """Is there still time to write how a subscriber is? What a run must not end without comes after that."""
        return self.seconds_left() >= _LEAVING_SECONDS

    def attempt_seconds(self, sources: Sources, consumer: Consumer) -> float:
        """How long one attempt may take: the registered time; else of a URL the default, of a function as long as a
        consumer may keep a message. Limited by a run's time."""
        if consumer.timeout_seconds:
            seconds = consumer.busy_seconds or consumer.timeout_seconds
            return min(seconds, self._seconds_at_start - 2 * MARGIN_SECONDS)
        lease_seconds = sources.group.lease_seconds or sources.topic.lease_seconds
        seconds = DEFAULT_URL_SECONDS if consumer.kind == ConsumerKind.URL else lease_seconds
        return min(seconds, MAX_QUICK_SECONDS, self._seconds_at_start / 2)

    def lease_seconds(self, sources: Sources, consumer: Consumer) -> int:
        """The lease of a message: one attempt, plus the time that the consumer may work on if this process dies; the
        group's, if the consumer may acknowledge later."""
        seconds = max(self.attempt_seconds(sources, consumer), consumer.busy_seconds)
        own = 0 if sources.group.auto_ack else sources.group.lease_seconds or sources.topic.lease_seconds
        return max(int(seconds + MARGIN_SECONDS) + 1, own)

    def longest_lease_seconds(self, sources: Sources) -> int:
        """The longest lease that a consumer of these sources gets."""
        return max((self.lease_seconds(sources, c) for c in sources.called_consumers()), default=0)
