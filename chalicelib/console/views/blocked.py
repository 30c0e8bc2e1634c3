"""The units of order of a serial group that hold messages back, and by whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ...modes import POLICIES
from ...services.inspect.survey import GroupSurvey

_MOST = 10


@dataclass(kw_only=True, frozen=True, slots=True)
class Blocked:
    """A unit that waits for one of its messages: which, who has it (None: it waits for its next attempt, or its holder
    has no name), until when, and how many were passed over for it."""

    shard: int
    offset: int
    attempt: int
    is_leased: bool
    consumer: str | None
    until_ms: int
    behind: int


def blocked_units(survey: GroupSurvey, names: Mapping[str, str]) -> list[Blocked]:
    """The messages, leased or waiting for a retry, that hold back later ones of their unit; those that hold back
    most come first. None except in SERIAL. `names`: consumers' names by uid."""
    if not POLICIES[survey.group.mode].holds_back:
        return []
    findings: list[Blocked] = []
    for progress in survey.shards:
        shard = progress.shard or 0
        passed_counts: Counter[str] = Counter()
        for span in progress.cursor.waiting:
            passed_counts[span.unit] += span.count if span.attempt == 1 else 0
        for lease in progress.cursor.leases.values():
            owner, until_ms = names.get(lease.owner), lease.deadline_ms
            findings += [
                Blocked(
                    shard=shard,
                    offset=span.start,
                    attempt=span.attempt,
                    is_leased=True,
                    consumer=owner,
                    until_ms=until_ms,
                    behind=passed_counts[span.unit],
                )
                for span in lease.spans
            ]
        findings += [
            Blocked(
                shard=shard,
                offset=span.start,
                attempt=span.attempt,
                is_leased=False,
                consumer=None,
                until_ms=span.due_ms,
                behind=passed_counts[span.unit],
            )
            for span in progress.cursor.waiting
            if span.attempt > 1
        ]
    return sorted((each for each in findings if each.behind), key=lambda each: -each.behind)[:_MOST]
