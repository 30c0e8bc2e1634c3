"""What topics with a budget spend in a month, at list prices: by their API calls, and by deliveries.

Each process adds up what it spends, and writes it to the topic's row at most once a minute: so each knows the sum of
all as it was up to a minute ago. A process that ends loses what it has not written.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from ...domain.errors import TooMany, Unavailable
from ...domain.times import DAY_SECONDS, MINUTE_MS
from ...domain.topic import Topic
from ...ports.world import Clock, Units
from ...store import TokenBuckets
from .catalog import Catalog
from .expiring_cache import BoundedCache

# In USD / 1e9 (docs/cost.md: `rest` and `start`, `write`, `read`), as all sums here.
_CALL, _WRITE, _READ = 3_700, 625, 125


class Budgets:
    """Spending and budgets of topics. One per process."""

    def __init__(self, *, token_buckets: TokenBuckets, catalog: Catalog, clock: Clock) -> None:
        self._token_buckets = token_buckets
        self._catalog = catalog
        self._clock = clock
        self._lock = threading.Lock()
        # Of each month of a topic: what all had written when the row was seen last, what is unwritten here, and when.
        self._accounts: BoundedCache[str, list[int]] = BoundedCache()

    def note(self, topic_name: str, units: Units, calls: int = 0) -> None:
        """Count what was spent on a topic, if it has a budget. What cannot be written now is written later."""
        if topic := self._catalog.known(topic_name):
            self.spent_usd(topic, round(calls * _CALL + units.writes * _WRITE + units.reads * _READ))

    def spent_usd(self, topic: Topic, more: int = 0) -> float | None:
        """What was spent on a topic in this month (UTC), as far as it is known here, with `more`; None: it has no
        budget."""
        if topic.budget_usd is None:
            return None
        now_ms, name = self._clock.now_ms(), f"spent#{topic.uid}#{self._now():%Y-%m}"
        with self._lock:
            account = self._accounts.of(name, lambda: [0, 0, 0])
            account[1] += more
            if not account[2] <= now_ms < account[2] + MINUTE_MS:
                account[2] = now_ms
                with suppress(Unavailable):
                    expires_s = now_ms // 1000 + 40 * DAY_SECONDS
                    account[:2] = self._token_buckets.spend(name, account[1], expires_s), 0
            return (account[0] + account[1]) / 1e9

    def is_spent(self, topic: Topic) -> bool:
        """Is the topic's budget of this month spent?"""
        return topic.budget_usd is not None and (self.spent_usd(topic) or 0) >= topic.budget_usd

    def refusal(self, topic: Topic) -> TooMany | None:
        """Why the topic takes no new messages until the month ends; None: it does."""
        if topic.on_budget != "refuse" or not self.is_spent(topic):
            return None
        words = f"Topic {topic.name!r} has spent its budget of this month and takes no messages. An admin can raise it."
        now = self._now()
        is_last_day = (now + timedelta(days=1)).month != now.month
        seconds = DAY_SECONDS - is_last_day * (now.hour * 3600 + now.minute * 60 + now.second)
        return TooMany("BUDGET_SPENT", words, retry_after_seconds=seconds)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
