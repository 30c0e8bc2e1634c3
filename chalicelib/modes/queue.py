"""QUEUE: many in flight, settled in any order; a failed message never holds back another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..domain import ranges
from ..domain.cursor import Cursor, Selection
from ..domain.cursor_transitions import leased_counts
from ..domain.limits import MAX_PASSED_OVER
from ..domain.ranges import Range
from ..domain.spans import HEAVY, Span
from .policy import Candidate, ClaimVerdict, Turn


class Queue:
    """The policy of groups in the mode QUEUE."""

    per_consumer = False
    reads_units = False
    holds_back = False
    waits_in_cursor = False
    of_key = 0
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


@dataclass(frozen=True, slots=True)
class Keyed:
    """The policy of groups in the mode QUEUE with a `key_concurrency`: at most `of_key` messages of one ordering key
    are leased. Those without a key have no unit."""

    of_key: int

    per_consumer = False
    reads_units = True
    holds_back = False
    waits_in_cursor = True
    run = 0

    def select(
        self, cursor: Cursor, returned: Sequence[Candidate], unclaimed: Sequence[Candidate], most: int
    ) -> Selection:
        """As a queue does, but messages of busy keys are skipped: they wait in the cursor. Those behind the last that
        is granted stay unclaimed, to save a write, unless they are many."""
        counts = leased_counts(cursor)
        granted: list[Span] = []
        settled_ranges: list[Range] = []
        later: list[Candidate] = []
        skipped: list[Span] = []
        next_offset = cursor.next

        def take(candidate: Candidate) -> bool:
            in_flight = counts[candidate.unit] + candidate.elsewhere
            if (candidate.unit and in_flight >= self.of_key) or len(granted) >= most:
                return False
            counts[candidate.unit] += 1
            granted.append(_span(candidate))
            return True

        busy_count = 0
        for candidate in (*returned, *unclaimed):
            if len(granted) >= most or busy_count == MAX_PASSED_OVER:
                break
            is_new, end = candidate.offset >= cursor.next, candidate.offset + candidate.count
            if candidate.verdict is ClaimVerdict.SETTLE:
                settled_ranges.append((candidate.offset, end))
            elif candidate.turn or not take(candidate):
                later += [candidate] if candidate.turn is Turn.LAST else []
                skipped += [_span(candidate)] if is_new else []
                if not candidate.turn:
                    busy_count += is_new
                    continue
            next_offset = max(next_offset, end)
        for candidate in later:
            take(candidate)
        if busy_count == MAX_PASSED_OVER and not granted:
            next_offset = max(next_offset, skipped[-1].end)
        taken = {span.start for span in granted}
        passed_over = tuple(s for s in skipped if s.end <= next_offset and s.start not in taken)
        return Selection(tuple(granted), passed_over, ranges.normalise(settled_ranges), next_offset)


def _span(candidate: Candidate) -> Span:
    unit = candidate.unit or (HEAVY if candidate.turn else "")
    return Span(candidate.offset, 1, candidate.attempt, unit)
