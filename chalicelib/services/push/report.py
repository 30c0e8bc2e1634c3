"""What one run did: attempts by verdict, and failed attempts with their ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...domain.call_result import CallResult, Verdict
from ...domain.message import traceparent
from ...domain.topic import Consumer
from ..consume.claimant import ClaimedMessage

_TROUBLES = 100


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An attempt that failed, by its ids."""

    message_id: str
    shard: int
    offset: int
    attempt: int
    consumer: str
    verdict: str
    detail: str
    traceparent: str | None


@dataclass(slots=True)
class DispatchReport:
    """What one run did: attempts by verdict, and late settlements. `troubles` are the first failed attempts; further
    ones are only counted."""

    verdicts: Counter[str] = field(default_factory=Counter)
    late: int = 0
    finished: bool = True
    troubles: list[FailedAttempt] = field(default_factory=list)

    def as_dict(self) -> dict[str, int | bool]:
        """The counts as JSON, for the function's log line."""
        return {**self.verdicts, "stale": self.late, "finished": self.finished}

    def add(
        self, consumer: Consumer, claimed_messages: Sequence[ClaimedMessage], results: Sequence[CallResult]
    ) -> None:
        """Count the results of one request, and keep failed attempts up to a limit."""
        self.verdicts.update(result.verdict.value for result in results)
        for claimed_message, result in zip(claimed_messages, results, strict=True):
            if len(self.troubles) < _TROUBLES and result.verdict not in (
                Verdict.DONE,
                Verdict.NOT_ATTEMPTED,
            ):
                message = claimed_message.message
                location = message.id, message.shard, message.offset, claimed_message.attempt, consumer.name
                ending = result.verdict.value, result.detail, traceparent(message.draft)
                self.troubles.append(FailedAttempt(*location, *ending))
