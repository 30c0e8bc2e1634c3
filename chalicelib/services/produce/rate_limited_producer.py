"""Applies a topic's rate limit before producing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...domain.errors import HeadraceError, TooMany
from ...domain.message import DeadReason, Draft
from ...domain.request import Request
from ...domain.topic import Topic
from ..core.counters import ACCEPTED, Counters
from ..core.rate_limiter import RateLimits
from .appender import ProduceResult
from .producer import Producer, refusal


class RateLimitedProducer:
    """Producer.produce for topics that may have a rate limit."""

    def __init__(self, producer: Producer, rate_limits: RateLimits, counters: Counters) -> None:
        self._producer = producer
        self._counters = counters
        self._rate_limits = rate_limits

    def produce(
        self, topic: Topic, drafts: Sequence[Draft], by: str = "", request: Request | None = None
    ) -> list[ProduceResult | HeadraceError]:
        """As Producer.produce. What is over the limit, the last first, is not stored and gets TooMany; or it is stored
        as a dead letter for every group, where the topic wants that. What would be refused anyway does not count, nor
        what an earlier try of a resend has stored: otherwise its end might never be admitted."""
        outcomes = self._produce(topic, drafts, by, request)
        self._counters.add(ACCEPTED, sum(isinstance(o, ProduceResult) and not o.duplicate for o in outcomes))
        return outcomes

    def _produce(
        self, topic: Topic, drafts: Sequence[Draft], by: str, request: Request | None
    ) -> list[ProduceResult | HeadraceError]:
        if topic.rate_limit is None:
            return self._producer.produce(topic, drafts, by, request)
        good = [i for i, draft in enumerate(drafts) if refusal(topic, draft) is None]
        stored = self._producer.stored_before(topic, [drafts[i] for i in good], request)
        new = [each for i, each in enumerate(good) if i not in stored]
        over = set(new[self._rate_limits.admit(topic, len(new)) :])
        if topic.on_rate_limit == "dead_letter":
            drafts_with_reasons = [
                replace(d, dead_reason=DeadReason.RATE_LIMITED) if i in over else d
                for i, d in enumerate(drafts)
            ]
            return self._producer.produce(topic, drafts_with_reasons, by, request)
        admitted_drafts = [d for i, d in enumerate(drafts) if i not in over]
        results = iter(self._producer.produce(topic, admitted_drafts, by, request))
        return [_too_many(topic) if i in over else next(results) for i in range(len(drafts))]

    def admit(self, topic: Topic, draft: Draft) -> Draft:
        """Count a message that is about to be prepared (in a transaction) like one that is produced. Returns it,
        perhaps marked as a dead letter. Raises TooMany."""
        if refusal(topic, draft) or self._rate_limits.admit(topic, 1):
            return draft
        if topic.on_rate_limit == "dead_letter":
            return replace(draft, dead_reason=DeadReason.RATE_LIMITED)
        raise _too_many(topic)


def _too_many(topic: Topic) -> TooMany:
    return TooMany(
        "RATE_LIMITED",
        f"Topic {topic.name!r} takes {topic.rate_limit} messages a second; this call did not store this one.",
        retry_after_seconds=1,  # brings a permit at any limit
    )
