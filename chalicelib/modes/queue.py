"""QUEUE: many in flight, settled in any order; a failed message never holds back another."""

from __future__ import annotations

from collections.abc import Sequence

from ..domain import ranges
from ..domain.cursor import Cursor, Selection
from ..domain.ranges import Range
from ..domain.spans import HEAVY, Span
from .policy import Candidate, ClaimVerdict, Turn


class Queue:
    """The policy of groups in the mode QUEUE."""

    per_consumer = False
    reads_units = False
    holds_back = False
    run = 0

    def select(
        self, cursor: Cursor, returned: Sequence[Candidate], unclaimed: Sequence[Candidate], most: int
    ) -> Selection:
        """Returned messages first, then those never claimed, in order; last those of heavy tenants. What is skipped of
        these waits under one unit."""
        grants: list[Span] = []
        settled_ranges: list[Range] = []
        last: list[Candidate] = []
        next_offset = cursor.next
        for candidate in (*returned, *unclaimed):
            is_delivered = candidate.verdict is ClaimVerdict.DELIVER
            if is_delivered and candidate.turn:
                last.append(candidate)
            elif len(grants) >= most:
                break
            elif is_delivered:
                grants.append(Span(candidate.offset, 1, candidate.attempt))
            else:
                settled_ranges.append((candidate.offset, candidate.offset + candidate.count))
            next_offset = max(next_offset, candidate.offset + candidate.count)
        spans = [(Span(each.offset, 1, each.attempt, HEAVY), each.turn) for each in last]
        granted = [span for span, turn in spans if turn is Turn.LAST][: max(0, most - len(grants))]
        skipped = {span.start for span, _ in spans if span.start >= cursor.next} - {s.start for s in granted}
        passed_over = tuple(span for span, _ in spans if span.start in skipped)
        return Selection((*grants, *granted), passed_over, ranges.normalise(settled_ranges), next_offset)
