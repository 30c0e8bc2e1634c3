"""QUEUE: many in flight, settled in any order; a failed message never holds back another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..domain import ranges
from ..domain.cursor import Cursor, Selection
from ..domain.ranges import Range
from ..domain.spans import Span
from .policy import Candidate, ClaimVerdict


class Queue:
    """The policy of groups in the mode QUEUE."""

    per_consumer = False
    reads_units = False
    holds_back = False
    run = 0

    def select(
        self,
        cursor: Cursor,
        returned: Sequence[Candidate],
        unclaimed: Sequence[Candidate],
        most: int,
    ) -> Selection:
        """Returned messages first, then those never claimed, in order."""
        grants: list[Span] = []
        settled_ranges: list[Range] = []
        next_offset = cursor.next
        for candidate in _until_full(returned, unclaimed, grants, most):
            if candidate.verdict is ClaimVerdict.SETTLE:
                settled_ranges.append((candidate.offset, candidate.offset + candidate.count))
            else:
                grants.append(Span(candidate.offset, 1, candidate.attempt))
            next_offset = max(next_offset, candidate.offset + candidate.count)
        return Selection(tuple(grants), (), ranges.normalise(settled_ranges), next_offset)


def _until_full(
    returned: Sequence[Candidate], unclaimed: Sequence[Candidate], grants: list[Span], most: int
) -> Iterable[Candidate]:
    for candidate in (*returned, *unclaimed):
        if len(grants) >= most:
            return
        yield candidate
