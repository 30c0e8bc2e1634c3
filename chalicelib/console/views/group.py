"""One group: its leases, its consumers, and what a seek would do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...api.resources.consumers import without_path
from ...domain import breaker
from ...domain.assignment import EVERYONE, Assignment, is_online
from ...domain.topic import Consumer, ConsumerKind, Token
from ...services.inspect.survey import GroupSurvey

_MOST_LEASES = 50


@dataclass(kw_only=True, frozen=True, slots=True)
class LeaseLine:
    """A lease that runs. `shard` is None on the retry lane."""

    shard: int | None
    offsets: Sequence[tuple[int, int]]
    number: int
    attempt: int
    consumer: str | None
    deadline_ms: int


@dataclass(kw_only=True, frozen=True, slots=True)
class Member:
    """A consumer of the group: what it has, and whether it works."""

    consumer: Consumer
    is_online: bool
    rank: int | None
    total: int
    shards: Sequence[int] | None
    breaker: str
    disables_ms: int | None

    def target_for(self, token: Token) -> str:
        """Where it is called; for who is no admin without what may be a secret."""
        target = self.consumer.target
        return (
            target
            if self.consumer.kind != ConsumerKind.URL or "admin" in token.scopes
            else without_path(target)
        )


@dataclass(frozen=True, slots=True)
class SeekPreview:
    """What a seek would do: messages that come again, messages that are passed over, leases that are void."""

    again: int
    passed_over: int
    leases: int
    whole: bool


def leases(survey: GroupSurvey, names: Mapping[str, str]) -> list[LeaseLine]:
    """The leases that run, the one that ends first first."""
    lines = [
        LeaseLine(
            shard=progress.shard,
            offsets=[(low, high - 1) for span in lease.spans for low, high in span.ranges()][:8],
            number=sum(span.count for span in lease.spans),
            attempt=max(span.attempt for span in lease.spans),
            consumer=names.get(lease.owner),
            deadline_ms=lease.deadline_ms,
        )
        for progress in (*survey.shards, *survey.lanes)
        for lease in progress.cursor.leases.values()
        if lease.spans
    ]
    return sorted(lines, key=lambda line: line.deadline_ms)[:_MOST_LEASES]


def members(consumers: Sequence[Consumer], assignment: Assignment | None, now_ms: int) -> list[Member]:
    """The consumers, those that do not work first."""
    lines = [_member(consumer, assignment, now_ms) for consumer in consumers]
    return sorted(lines, key=lambda line: (line.is_online, line.consumer.name))


def _member(consumer: Consumer, assignment: Assignment | None, now_ms: int) -> Member:
    everywhere = assignment is not None and assignment.strategy == EVERYONE
    return Member(
        consumer=consumer,
        is_online=is_online(consumer, now_ms),
        rank=assignment.rank(consumer.uid) if assignment else None,
        total=len(assignment.members) if assignment else 0,
        shards=None if everywhere else assignment.shards(consumer.uid) if assignment else (),
        breaker=breaker.state(consumer.open_until_ms, now_ms),
        disables_ms=breaker.disables_ms(consumer.failing_ms, consumer.times_opened, now_ms),
    )


def seek_preview(survey: GroupSurvey, targets: Mapping[int, int], *, whole: bool) -> SeekPreview:
    """What becomes of a group that is sent to these offsets, by shard."""
    again = passed_over = running_count = 0
    for progress in survey.shards:
        if progress.shard is None or progress.shard not in targets:
            continue
        cursor, target = progress.cursor, targets[progress.shard]
        settled_ranges = [(cursor.begin, cursor.floor), *cursor.settled]
        again += sum(max(0, high - max(low, target)) for low, high in settled_ranges)
        unsettled_count = max(0, target - cursor.floor) - sum(
            max(0, min(high, target) - low) for low, high in cursor.settled
        )
        passed_over += max(0, unsettled_count)
        running_count += len(cursor.leases)
    return SeekPreview(again, passed_over, running_count, whole)
